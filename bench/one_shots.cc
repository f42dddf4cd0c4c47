#include "bench/sections.h"

namespace carrel::bench {

namespace {

constexpr Budget kOneShot{Budget::Better::kLess, 0.8, 0.5};
constexpr char kTrue[] = "/bin/true";
constexpr char kSection[] = "one-shot of /bin/true";
constexpr char kIdle[] = "idle";
constexpr int kPauseMs = 15;
constexpr char kKept[] = "kept";

Contender timed(std::string name, Launch launch) {
  return Contender{std::move(name),
                   [launch = std::move(launch)]() -> Result<double> { return time_run(launch); }};
}

Contender compared(Contender contender, std::string peer, std::optional<Budget> budget) {
  contender.peer = std::move(peer);
  contender.budget = budget;
  return contender;
}

// Run once beforehand, with its output: a row that fails says what the program said.
bool works(const Launch& launch, const std::string& name, Report& report) {
  auto first = output_of(launch);
  if (!first.ok()) {
    report.leave_out(std::string(kSection) + ", " + name, first.error().to_string());
  }
  return first.ok();
}

void add_carrel(const Setup& setup, Who who, const std::string& home, const std::string& name,
                const std::string& peer, Report& report, std::vector<Contender>& contenders) {
  Launch launch = carrel_launch(setup, who, home, {"run", "--", kTrue});
  if (works(launch, name, report)) {
    contenders.push_back(compared(timed(name, std::move(launch)), peer, kOneShot));
  }
}

}  // namespace

void measure_one_shots(const Setup& setup, Effort effort, Report& report) {
  std::vector<Contender> contenders;
  contenders.push_back(timed("plain fork and exec", plain_launch({kTrue})));
  contenders.push_back(
      compared(timed("carrel version", carrel_launch(setup, Who::kRoot, kIdle, {"version"})),
               "plain fork and exec", std::nullopt));
  for (Who who : {Who::kRoot, Who::kUser}) {
    const std::string name = who == Who::kRoot ? "bubblewrap" : "bubblewrap, user";
    Launch launch = bwrap_launch(setup, who, {kTrue});
    if (setup.bwrap.empty()) {
      report.leave_out(std::string(kSection) + ", " + name, "bwrap is not installed");
    } else if (works(launch, name, report)) {
      contenders.push_back(timed(name, std::move(launch)));
    }
  }
  add_carrel(setup, Who::kRoot, kIdle, "carrel run", "bubblewrap", report, contenders);
  add_carrel(setup, Who::kUser, kIdle, "carrel run, user", "bubblewrap, user", report, contenders);
  struct Kept {
    Who who;
    std::string id;
  };
  std::vector<Kept> kept;
  for (Who who : {Who::kRoot, Who::kUser}) {
    const std::string suffix = who == Who::kRoot ? "" : ", user";
    auto id = create_box(setup, who, kKept);
    if (!id.ok()) {
      report.leave_out("carrel run with a keeper" + suffix, id.error().to_string());
      continue;
    }
    kept.push_back({who, id.value()});
    add_carrel(setup, who, kKept, "carrel run, keeper alive" + suffix, "bubblewrap" + suffix,
               report, contenders);
  }
  const int slow = effort == Effort::kFull ? 5 : 10;
  if (setup.runc.empty()) {
    report.leave_out(std::string(kSection) + ", runc", "runc is not installed");
  } else if (works(runc_launch(setup, 0), "runc", report)) {
    Contender runc = compared(timed("runc run", runc_launch(setup, 0)), "bubblewrap", {});
    runc.every = slow;
    contenders.push_back(std::move(runc));
  }
  if (setup.has_docker()) {
    Contender docker = compared(timed("docker run", docker_run_launch(setup, {"--rm"}, {kTrue})),
                                "bubblewrap", {});
    docker.every = 4 * slow;
    contenders.push_back(std::move(docker));
  }
  interleave(report, kSection, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{5, 300, kPauseMs} : Rounds{2, 40, kPauseMs});
  for (const Kept& box : kept) {
    Status removed = remove_box(setup, box.who, kKept, box.id);
    if (!removed.ok()) {
      report.warn("a sandbox of the benchmark was not removed: " + removed.error().to_string());
    }
  }
}

}  // namespace carrel::bench
