#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <array>
#include <csignal>

#include "bench/sections.h"

namespace carrel::bench {

namespace {

constexpr char kSection[] = "instructions of the program itself";

// Counts the instructions that the program's first process runs in user mode, from exec to its
// end, one step at a time. Its children are not stepped. A signal is passed on.
Result<double> count(const Launch& launch) {
  // Its input stays open: the end of an input would be passed on at a moment that varies.
  std::array<int, 2> input{};
  if (::pipe2(input.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd read_end(input[0]);
  const UniqueFd write_end(input[1]);
  CARREL_ASSIGN(const pid_t pid, start(launch, {read_end.get(), -1, -1}, Tracing::kYes));
  double steps = 0;
  int signal = 0;
  int status = 0;
  while (true) {
    if (::waitpid(pid, &status, 0) < 0) {
      return system_error("wait for a traced process");
    }
    if (!WIFSTOPPED(status)) {
      break;
    }
    signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (::ptrace(PTRACE_SINGLESTEP, pid, nullptr, signal) != 0) {
      return system_error("step a traced process");
    }
    steps += signal == 0 ? 1 : 0;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Error{Code::kSystem, 0, launch.arguments.front() + " failed while it was counted", {}};
  }
  return steps / 1000;
}

Contender counted(const std::string& name, const Launch& launch) {
  return Contender{name, [launch] { return count(launch); }};
}

}  // namespace

void measure_instructions(const Setup& setup, Effort effort, Report& report) {
  std::vector<Contender> contenders;
  contenders.push_back(counted("/bin/true", plain_launch({"/bin/true"})));
  if (!setup.bwrap.empty()) {
    contenders.push_back(counted("bwrap", bwrap_launch(setup, Who::kRoot, {"/bin/true"})));
  }
  contenders.push_back(
      counted("carrel version", carrel_launch(setup, Who::kRoot, "idle", {"version"})));
  for (Who who : {Who::kRoot, Who::kUser}) {
    contenders.push_back(counted(who == Who::kRoot ? "carrel run" : "carrel run, user",
                                 carrel_launch(setup, who, "idle", {"run", "--", "/bin/true"})));
    contenders.back().peer = "bwrap";
  }
  interleave(report, kSection, "thousand", std::move(contenders),
             effort == Effort::kFull ? Rounds{0, 2} : Rounds{0, 1});
}

}  // namespace carrel::bench
