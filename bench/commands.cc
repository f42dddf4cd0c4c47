#include <memory>
#include <utility>

#include "bench/docker_api.h"
#include "bench/sections.h"
#include "sandbox/command.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::bench {

namespace {

constexpr Budget kBuiltin{Budget::Better::kLess, 3, 1.5};
constexpr char kShellSection[] = "a builtin in a shell that is there";
constexpr char kProcessSection[] = "a process in a sandbox that is there";
constexpr char kHome[] = "commands";
constexpr Budget kInContainer{Budget::Better::kLess, 1.0 / 50, 1.0 / 200};
constexpr Budget kNewContainer{Budget::Better::kLess, 1.2, 1.0};
constexpr char kContainerSection[] = "a command in a container of docker that is there";
constexpr char kNewContainerSection[] = "a container of docker for /bin/true, made and removed";
constexpr char kLastingContainerSection[] = "a container of docker that stays, made";
constexpr char kContainerHome[] = "containers";
constexpr char kExec[] = "docker exec, API";
constexpr char kTrue[] = "/bin/true";
constexpr char kEcho[] = "echo x";
constexpr char kBubblewrap[] = "bash on a pipe in bubblewrap";
// A builtin is quicker than a sample should be: each is the mean of so many.
constexpr int kBatch = 10;
// Two processes that talk are three times as quick on one processor as on two, and stay where they
// are: each contender gets a fresh shell after so many samples, so that no row is the luck of one.
constexpr int kSitting = 10;

// One connection to a long-lived sandbox through the library.
struct Room {
  storage::Home home;
  std::string id;
  sandbox::GuestStream stream;
};

Status connect(Room& room) {
  CARREL_ASSIGN(storage::BoxRecord record, storage::find_box(room.home, room.id));
  CARREL_ASSIGN(UniqueFd socket, storage::connect_box(room.home, record));
  room.stream = sandbox::GuestStream(std::move(socket));
  return room.stream.greet(room.id, 10'000);
}

Result<std::unique_ptr<Room>> enter(const Setup& setup, const char* home = kHome,
                                    const std::vector<std::string>& options = {}) {
  auto room = std::make_unique<Room>();
  CARREL_ASSIGN(room->id, create_box(setup, Who::kRoot, home, {}, options));
  CARREL_ASSIGN(room->home, storage::Home::open_at(home_path(setup, Who::kRoot, home)));
  CARREL_TRY(connect(*room));
  return room;
}

// Runs one command to its end, and holds it to what it must have written.
Status run_in(Room& room, const sandbox::CommandRequest& request, const std::string& expected) {
  std::string output;
  sandbox::CommandIo io;
  io.output = [&](protocol::Stream, std::string_view data) -> Status {
    output += data;
    return {};
  };
  CARREL_ASSIGN(std::string payload, sandbox::encode_start(request, sandbox::Input::kNone));
  CARREL_ASSIGN(sandbox::ExecResult result,
                sandbox::serve_command(room.stream, protocol::FrameType::kStart, payload,
                                       request.timeout, io));
  if (!result.success() || output != expected) {
    return Error{Code::kSystem, 0, "a command in the sandbox did not give what it should", {}};
  }
  return {};
}

// The mean time of one of a batch, in milliseconds.
Result<double> batched(const std::function<Status()>& once) {
  const double before = now_ms();
  for (int i = 0; i < kBatch; ++i) {
    CARREL_TRY(once());
  }
  return (now_ms() - before) / kBatch;
}

Result<double> timed(const std::function<Status()>& once) {
  const double before = now_ms();
  CARREL_TRY(once());
  return now_ms() - before;
}

// Samples of a shell that `renew` makes fresh for each sitting, and that has run a batch before the
// first that counts.
std::function<Result<double>()> in_sittings(std::function<Status()> renew,
                                            std::function<Status()> once) {
  return [renew = std::move(renew), once = std::move(once), taken = 0]() mutable -> Result<double> {
    if (taken++ % kSitting == 0) {
      CARREL_TRY(renew());
      CARREL_TRY(batched(once));
    }
    return batched(once);
  };
}

Status echo_on_pipe(PipedProcess& shell) {
  CARREL_ASSIGN(std::string answer, shell.ask(std::string(kEcho) + "; echo \"$?.\"\n", ".\n"));
  if (answer != "x\n0.\n") {
    return Error{Code::kSystem, 0, "the shell on the pipe answers '" + answer + "'", {}};
  }
  return {};
}

void add_pipe(const Launch& launch, const std::string& name, std::vector<Contender>& contenders) {
  auto shell = std::make_shared<PipedProcess>();
  auto renew = [shell, launch]() -> Status {
    CARREL_ASSIGN(*shell, PipedProcess::start(launch));
    return {};
  };
  contenders.push_back(
      Contender{name, in_sittings(renew, [shell] { return echo_on_pipe(*shell); })});
}

void add_room(Room& room, const std::string& name, const std::string& peer, Budget budget,
              std::vector<Contender>& contenders) {
  auto run = [&room](const char* text, const char* expected) {
    sandbox::CommandRequest request;
    request.shell_text = text;
    return run_in(room, request, expected);
  };
  auto renew = [&room, run]() -> Status {
    CARREL_TRY(connect(room));
    return run("exit", "");
  };
  contenders.push_back(
      Contender{name, in_sittings(renew, [run] { return run(kEcho, "x\n"); }), peer, budget});
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the list owns them

void measure_shell(const Setup& setup, Effort effort, Room* room, Report& report) {
  std::vector<Contender> contenders;
  add_pipe(plain_launch({"/bin/bash", "--noprofile", "--norc"}), "bash on a pipe", contenders);
  if (!setup.bwrap.empty()) {
    add_pipe(bwrap_launch(setup, Who::kRoot, {"/bin/bash", "--noprofile", "--norc"}), kBubblewrap,
             contenders);
  }
  if (setup.has_docker()) {
    add_pipe(docker_run_launch(setup, {"--rm", "-i"}, {"/bin/bash", "--noprofile", "--norc"}),
             "bash on a pipe in docker", contenders);
    contenders.back().peer = kBubblewrap;
  }
  if (room != nullptr) {
    add_room(*room, "carrel, library", kBubblewrap, kBuiltin, contenders);
  }
  interleave(report, kShellSection, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{10, 400} : Rounds{3, 40});
}

void measure_processes(const Setup& setup, Effort effort, Room* room, Report& report) {
  std::vector<Contender> contenders;
  std::string container;
  if (setup.has_docker()) {
    auto id = output_of(docker_run_launch(setup, {"-d"}, {"/bin/sleep", "100000"}));
    if (id.ok()) {
      container = id.value();
      contenders.push_back(Contender{"docker exec, API", [&] {
                                       return timed([&] {
                                         return docker_exec(setup.docker_socket, container, kTrue);
                                       });
                                     }});
      contenders.push_back(
          Contender{"docker exec, command",
                    [&] { return time_run(docker_launch(setup, {"exec", container, kTrue})); }});
      for (Contender& contender : contenders) {
        contender.every = 10;
      }
    } else {
      report.leave_out(std::string(kProcessSection) + ", docker", id.error().to_string());
    }
  }
  if (room != nullptr) {
    contenders.push_back(Contender{"carrel exec, library",
                                   [room] {
                                     return timed([&] {
                                       sandbox::CommandRequest request;
                                       request.arguments = {kTrue};
                                       return run_in(*room, request, "");
                                     });
                                   },
                                   "docker exec, API"});
    const Launch exec = carrel_launch(setup, Who::kRoot, kHome, {"exec", room->id, "--", kTrue});
    contenders.push_back(Contender{"carrel exec, command", [exec] { return time_run(exec); },
                                   "docker exec, command"});
    const Launch shell = carrel_launch(setup, Who::kRoot, kHome, {"sh", room->id, kEcho});
    contenders.push_back(Contender{"carrel sh, command (a builtin)",
                                   [shell] { return time_run(shell); }, "docker exec, command"});
  }
  interleave(report, kProcessSection, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{5, 200} : Rounds{2, 30});
  if (!container.empty()) {
    (void)output_of(docker_launch(setup, {"rm", "-f", container}));
  }
}

// The long-lived shell of a sandbox on docker beside what docker itself has for a command.
void measure_in_container(const Setup& setup, Effort effort, Room& room, Report& report) {
  auto id = output_of(docker_run_launch(setup, {"-d"}, {"/bin/sleep", "100000"}));
  if (!id.ok()) {
    report.leave_out(kContainerSection, id.error().to_string());
    return;
  }
  const std::string container = id.value();
  std::vector<Contender> contenders;
  contenders.push_back(Contender{
      kExec,
      [&] { return timed([&] { return docker_exec(setup.docker_socket, container, kTrue); }); }});
  contenders.push_back(
      Contender{"docker exec, command",
                [&] { return time_run(docker_launch(setup, {"exec", container, kTrue})); }});
  add_room(room, "carrel on docker, the shell", kExec, kInContainer, contenders);
  interleave(report, kContainerSection, "ms", std::move(contenders),
             effort == Effort::kFull ? Rounds{5, 60} : Rounds{2, 20});
  (void)output_of(docker_launch(setup, {"rm", "-f", container}));
}

// How long it takes to have one that stays. That it is removed again is not part of it.
Result<double> time_making(const Launch& make, const std::function<Launch(std::string)>& remove) {
  const double before = now_ms();
  CARREL_ASSIGN(const std::string id, output_of(make));
  const double took = now_ms() - before;
  CARREL_ASSIGN(const std::string removed, output_of(remove(id)));
  return took;
}

void measure_new_containers(const Setup& setup, Effort effort, Report& report) {
  constexpr char kDockerRun[] = "docker run --rm";
  constexpr char kDockerRunDetached[] = "docker run -d";
  constexpr int kPauseMs = 50;
  const Rounds rounds = effort == Effort::kFull ? Rounds{3, 40, kPauseMs} : Rounds{2, 10, kPauseMs};
  std::vector<Contender> once;
  std::vector<Contender> lasting;
  once.push_back(Contender{kDockerRun, [docker = docker_run_launch(setup, {"--rm"}, {kTrue})] {
                             return time_run(docker);
                           }});
  lasting.push_back(Contender{kDockerRunDetached, [&setup] {
                                return time_making(
                                    docker_run_launch(setup, {"-d"}, {"/bin/sleep", "100000"}),
                                    [&](const std::string& id) {
                                      return docker_launch(setup, {"rm", "-f", id});
                                    });
                              }});
  // The user is in the engine's group.
  for (const Who who : {Who::kRoot, Who::kUser}) {
    const std::string whose = who == Who::kRoot ? "" : ", as a user";
    once.push_back(Contender{"carrel run --backend docker" + whose,
                             [run = carrel_launch(setup, who, kContainerHome,
                                                  {"run", "--backend", "docker", "--", kTrue})] {
                               return time_run(run);
                             },
                             kDockerRun, kNewContainer});
    lasting.push_back(Contender{
        "carrel create --backend docker" + whose,
        [&setup, who] {
          return time_making(
              carrel_launch(setup, who, kContainerHome, {"create", "--backend", "docker"}),
              [&](const std::string& id) {
                return carrel_launch(setup, who, kContainerHome, {"rm", id});
              });
        },
        kDockerRunDetached, kNewContainer});
  }
  interleave(report, kNewContainerSection, "ms", std::move(once), rounds);
  interleave(report, kLastingContainerSection, "ms", std::move(lasting), rounds);
}

}  // namespace

void measure_containers(const Setup& setup, Effort effort, Report& report) {
  if (!setup.has_docker()) {
    report.leave_out("sandboxes on docker", setup.why_no_docker);
    return;
  }
  auto room = enter(setup, kContainerHome, {"--backend", "docker"});
  if (!room.ok()) {
    report.leave_out("sandboxes on docker", room.error().to_string());
    return;
  }
  measure_in_container(setup, effort, *room.value(), report);
  measure_new_containers(setup, effort, report);
  room.value()->stream.close();
  if (Status removed = remove_box(setup, Who::kRoot, kContainerHome, room.value()->id);
      !removed.ok()) {
    report.warn("a sandbox of the benchmark was not removed: " + removed.error().to_string());
  }
}

void measure_commands(const Setup& setup, Effort effort, Report& report) {
  auto room = enter(setup);
  Room* entered = room.ok() ? room.value().get() : nullptr;
  if (!room.ok()) {
    report.leave_out("commands in a running sandbox, carrel", room.error().to_string());
  }
  measure_shell(setup, effort, entered, report);
  measure_processes(setup, effort, entered, report);
  if (entered != nullptr) {
    entered->stream.close();
    Status removed = remove_box(setup, Who::kRoot, kHome, entered->id);
    if (!removed.ok()) {
      report.warn("a sandbox of the benchmark was not removed: " + removed.error().to_string());
    }
  }
}

}  // namespace carrel::bench
