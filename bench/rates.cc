#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "backends/native/one_shot.h"
#include "base/files.h"
#include "bench/sections.h"
#include "policy/settings.h"

namespace carrel::bench {

namespace {

constexpr int kWorkers = 8;
constexpr Budget kRate{Budget::Better::kMore, 1.5, 8};
constexpr char kTrue[] = "/bin/true";

// How many a second, with eight workers that each make the next as soon as the last is gone. The
// time ends with the last one's end, so that nothing counts that is not finished.
Result<double> rate(const std::function<Launch(int worker)>& make, double milliseconds) {
  std::atomic<int> finished = 0;
  std::atomic<bool> failed = false;
  std::vector<std::optional<Error>> errors(kWorkers);
  const double before = now_ms();
  std::vector<std::thread> workers;
  workers.reserve(kWorkers);
  for (int worker = 0; worker < kWorkers; ++worker) {
    workers.emplace_back([&, worker] {
      const Launch launch = make(worker);
      while (!failed && now_ms() - before < milliseconds) {
        auto time = time_run(launch);
        if (!time.ok()) {
          errors[static_cast<std::size_t>(worker)] = time.error();
          failed = true;
          return;
        }
        ++finished;
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  for (const std::optional<Error>& error : errors) {
    if (error.has_value()) {
      return *error;
    }
  }
  return finished * 1000.0 / (now_ms() - before);
}

Contender rated(std::string name, std::function<Launch(int)> make, double milliseconds) {
  return Contender{std::move(name), [make = std::move(make), milliseconds]() -> Result<double> {
                     return rate(make, milliseconds);
                   }};
}

// What one worker of an embedding program does: sandboxes through the library until the time is up.
Result<int> work_in_library(const std::string& home_path, double end) {
  CARREL_ASSIGN(storage::Home home, storage::Home::open_at(home_path));
  native::OneShot job;
  job.spec = policy::default_spec(policy::Operation::kRun);
  job.command.arguments = {kTrue};
  job.command.timeout = job.spec.limits.timeout;
  sandbox::CommandIo io;
  io.output = [](protocol::Stream, std::string_view) -> Status { return {}; };
  native::OwnNursery nursery;
  native::OneShots sandboxes(home, sandbox::find_no_walls, &nursery);
  int finished = 0;
  while (now_ms() < end) {
    CARREL_ASSIGN(sandbox::ExecResult result, sandboxes.run(job, io));
    if (!result.success()) {
      return Error{Code::kSystem, 0, "a sandbox ended with: " + result.reason, {}};
    }
    ++finished;
  }
  return finished;
}

[[noreturn]] void be_library_worker(const Setup& setup, Who who, double end, int report) {
  const std::string home = home_path(setup, who, "idle");
  if (who == Who::kUser &&
      (::setgroups(0, nullptr) != 0 || ::setgid(setup.user.gid) != 0 ||
       ::setuid(setup.user.uid) != 0 || ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)) {
    ::_exit(1);
  }
  auto finished = work_in_library(home, end);
  if (!finished.ok()) {
    (void)write_all(STDERR_FILENO, "bench: " + finished.error().message + "\n");
    ::_exit(1);
  }
  (void)write_all(report, std::string(static_cast<std::size_t>(finished.value()), '.'));
  ::_exit(0);
}

// The same, by eight processes that use the library and so start no program for each sandbox.
Result<double> rate_in_library(const Setup& setup, Who who, double milliseconds) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const double before = now_ms();
  std::vector<pid_t> workers;
  for (int i = 0; i < kWorkers; ++i) {
    pid_t worker = ::fork();
    if (worker == 0) {
      be_library_worker(setup, who, before + milliseconds, write_end.get());
    }
    workers.push_back(worker);
  }
  write_end.reset();
  CARREL_ASSIGN(std::string finished, read_all(read_end.get(), 1U << 20));
  bool failed = false;
  for (pid_t worker : workers) {
    int status = 1;
    failed = worker < 0 || ::waitpid(worker, &status, 0) != worker || status != 0 || failed;
  }
  if (failed) {
    return Error{Code::kSystem, 0, "a worker that uses the library failed", {}};
  }
  return static_cast<double>(finished.size()) * 1000.0 / (now_ms() - before);
}

}  // namespace

void measure_rates(const Setup& setup, Effort effort, Report& report) {
  const double slice = effort == Effort::kFull ? 2000 : 700;
  std::vector<Contender> contenders;
  if (!setup.bwrap.empty()) {
    contenders.push_back(
        rated("bubblewrap", [&](int) { return bwrap_launch(setup, Who::kRoot, {kTrue}); }, slice));
    contenders.push_back(rated(
        "bubblewrap, user", [&](int) { return bwrap_launch(setup, Who::kUser, {kTrue}); }, slice));
  }
  contenders.push_back(rated(
      "carrel run",
      [&](int) { return carrel_launch(setup, Who::kRoot, "idle", {"run", "--", kTrue}); }, slice));
  contenders.back().peer = "bubblewrap";
  contenders.push_back(rated(
      "carrel run, user",
      [&](int) { return carrel_launch(setup, Who::kUser, "idle", {"run", "--", kTrue}); }, slice));
  contenders.back().peer = "bubblewrap, user";
  for (Who who : {Who::kRoot, Who::kUser}) {
    const std::string user = who == Who::kUser ? ", user" : "";
    contenders.push_back(Contender{"carrel, library" + user, [&setup, who, slice] {
                                     return rate_in_library(setup, who, slice);
                                   }});
    contenders.back().peer = "bubblewrap" + user;
    contenders.back().budget = kRate;
  }
  if (!setup.runc.empty()) {
    contenders.push_back(
        rated("runc run", [&](int worker) { return runc_launch(setup, worker); }, slice));
    contenders.back().peer = "bubblewrap";
    contenders.back().every = 2;
  }
  if (setup.has_docker()) {
    contenders.push_back(rated(
        "docker run", [&](int) { return docker_run_launch(setup, {"--rm"}, {kTrue}); }, 2 * slice));
    contenders.back().peer = "bubblewrap";
    contenders.back().every = 5;
  }
  interleave(report, "made and removed, 8 workers", "/s", std::move(contenders),
             effort == Effort::kFull ? Rounds{1, 11} : Rounds{0, 3});
}

}  // namespace carrel::bench
