#include <unistd.h>

#include <list>
#include <optional>

#include "bench/daemon_api.h"
#include "bench/docker_api.h"
#include "bench/sections.h"

namespace carrel::bench {

namespace {

constexpr Budget kWarm{Budget::Better::kLess, 0.5, 0.15};
constexpr Budget kCommand{Budget::Better::kLess, 1.0 / 100, 1.0 / 300};
constexpr char kCreateSection[] = "a sandbox and its first command, by the daemon";
constexpr char kCommandSection[] = "a command, by the daemon";
constexpr char kTrue[] = "/bin/true";
constexpr char kDockerExec[] = "docker exec, API";
constexpr int kPauseMs = 30;
constexpr int kBatch = 10;
constexpr int kReadyTries = 500;
constexpr unsigned kReadyStepUs = 10'000;

// How the first command is asked for: after the sandbox is there, or along with it.
enum class First { kProcess, kShell, kAlong };

Status check_first(const nlohmann::json& result) {
  if (!result.is_object() || result.value("exit_code", -1) != 0) {
    return Error{Code::kSystem, 0, "the first command did not end with 0", {}};
  }
  return {};
}

Status run_first(ServedHome& served, const std::string& box, First first) {
  const bool shell = first == First::kShell;
  CARREL_ASSIGN(const auto result,
                served.ask_json("POST", box + (shell ? "/shell" : "/exec"),
                                shell ? R"({"command":"true"})" : R"({"argv":["/bin/true"]})"));
  return check_first(result);
}

// With a pool, nobody asks before there is one ready: a pool that ran dry is another row.
Status wait_for_pool(ServedHome& served) {
  for (int i = 0; i < kReadyTries; ++i) {
    CARREL_ASSIGN(const long ready, served.metric("warm_sandboxes"));
    CARREL_ASSIGN(const long wanted, served.metric("warm_sandboxes_limit"));
    if (ready == wanted) {
      return {};
    }
    ::usleep(kReadyStepUs);
  }
  return Error{Code::kTimeout, 0, "the pool does not fill up", {}};
}

// Removed again, and the pool filled again, before the next contender's turn; neither is timed.
Result<double> time_creation(ServedHome& served, First first) {
  CARREL_TRY(wait_for_pool(served));
  const double before = now_ms();
  const bool along = first == First::kAlong;
  CARREL_ASSIGN(
      const auto made,
      served.ask_json("POST", "/v1/sandboxes", along ? R"({"run":{"argv":["/bin/true"]}})" : "{}"));
  const std::string box = "/v1/sandboxes/" + made.value("id", "");
  CARREL_TRY(along ? check_first(made.value("result", nlohmann::json()))
                   : run_first(served, box, first));
  const double took = now_ms() - before;
  CARREL_TRY(served.ask("DELETE", box + "?grace_ms=0"));
  CARREL_TRY(wait_for_pool(served));
  return took;
}

class Daemons {
 public:
  Daemons(const Setup& setup, Report& report) : setup_(setup), report_(report) {}

  // Null, and a word in the report, when it does not start.
  ServedHome* start(Who who, const std::string& home, std::vector<std::string> options) {
    auto served = ServedHome::start(setup_, who, home, std::move(options));
    if (!served.ok()) {
      report_.leave_out("the daemon in '" + home + "'", served.error().to_string());
      return nullptr;
    }
    all_.push_back(std::move(served.value()));
    return &all_.back();
  }

  // All that the pools gave, and what was made without.
  void report_misses() {
    for (ServedHome& served : all_) {
      const auto misses = served.metric("warm_misses_total");
      if (misses.ok() && misses.value() > 0) {
        report_.warn(std::to_string(misses.value()) + " sandboxes were not made of a warm one");
      }
    }
  }

 private:
  const Setup& setup_;
  Report& report_;
  std::list<ServedHome> all_;
};

void measure_creation(const Setup& setup, Effort effort, Report& report) {
  std::vector<Contender> contenders;
  Daemons daemons(setup, report);
  for (Who who : {Who::kRoot, Who::kUser}) {
    const std::string suffix = who == Who::kRoot ? "" : ", user";
    const std::string peer = "bubblewrap" + suffix;
    if (setup.bwrap.empty()) {
      report.leave_out(std::string(kCreateSection) + ", " + peer, "bwrap is not installed");
    } else {
      const Launch launch = bwrap_launch(setup, who, {kTrue});
      contenders.push_back(Contender{peer, [launch] { return time_run(launch); }});
    }
    auto add = [&](ServedHome* served, const std::string& name, First first,
                   std::optional<Budget> budget) {
      if (served != nullptr) {
        contenders.push_back(Contender{name + suffix,
                                       [served, first] { return time_creation(*served, first); },
                                       peer, budget});
      }
    };
    ServedHome* const warm = daemons.start(who, "warm", {"--warm", "2"});
    ServedHome* const cold = daemons.start(who, "cold", {"--warm", "0"});
    add(warm, "carrel, warm pool, a process", First::kProcess, kWarm);
    add(warm, "carrel, warm pool, in one request", First::kAlong, kWarm);
    add(warm, "carrel, warm pool, in the shell", First::kShell, std::nullopt);
    add(cold, "carrel, no pool, a process", First::kProcess, std::nullopt);
  }
  interleave(report, kCreateSection, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{5, 200, kPauseMs} : Rounds{2, 30, kPauseMs});
  daemons.report_misses();
}

Status echo(ServedHome& served, const std::string& box) {
  CARREL_ASSIGN(const auto result,
                served.ask_json("POST", box + "/shell", R"({"command":"echo x"})"));
  return result.value("stdout", "") == "x\n"
             ? Status()
             : Error{Code::kSystem, 0, "the shell did not answer as it should", {}};
}

void measure_api_commands(const Setup& setup, Effort effort, Report& report) {
  Daemons daemons(setup, report);
  ServedHome* const served = daemons.start(Who::kRoot, "api", {"--warm", "0"});
  if (served == nullptr) {
    return;
  }
  std::vector<Contender> contenders;
  std::string container;
  if (!setup.has_docker()) {
    report.leave_out(std::string(kCommandSection) + ", " + kDockerExec, setup.why_no_docker);
  } else if (auto id = output_of(docker_run_launch(setup, {"-d"}, {"/bin/sleep", "100000"}));
             id.ok()) {
    container = id.value();
    contenders.push_back(Contender{kDockerExec, [&]() -> Result<double> {
                                     const double before = now_ms();
                                     CARREL_TRY(docker_exec(setup.docker_socket, container, kTrue));
                                     return now_ms() - before;
                                   }});
    contenders.back().every = 10;
  } else {
    report.leave_out(std::string(kCommandSection) + ", " + kDockerExec, id.error().to_string());
  }
  auto made = served->ask_json("POST", "/v1/sandboxes", "{}");
  if (!made.ok()) {
    report.leave_out(kCommandSection, made.error().to_string());
    return;
  }
  const std::string box = "/v1/sandboxes/" + made->value("id", "");
  contenders.push_back(Contender{"carrel API, in the shell",
                                 [&]() -> Result<double> {
                                   const double before = now_ms();
                                   for (int i = 0; i < kBatch; ++i) {
                                     CARREL_TRY(echo(*served, box));
                                   }
                                   return (now_ms() - before) / kBatch;
                                 },
                                 kDockerExec, kCommand});
  contenders.push_back(Contender{"carrel API, a process",
                                 [&]() -> Result<double> {
                                   const double before = now_ms();
                                   CARREL_TRY(run_first(*served, box, First::kProcess));
                                   return now_ms() - before;
                                 },
                                 kDockerExec, std::nullopt});
  interleave(report, kCommandSection, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{5, 300} : Rounds{2, 30});
  (void)served->ask("DELETE", box + "?grace_ms=0");
  if (!container.empty()) {
    (void)output_of(docker_launch(setup, {"rm", "-f", container}));
  }
}

}  // namespace

void measure_daemon(const Setup& setup, Effort effort, Report& report) {
  measure_creation(setup, effort, report);
  measure_api_commands(setup, effort, report);
}

}  // namespace carrel::bench
