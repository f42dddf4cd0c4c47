#include "kernel/program.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "kernel/program_child.h"

namespace carrel::kernel {

namespace {

const char* words_of(ProgramStep step) {
  switch (step) {
    case ProgramStep::kPriority:
      return "give up a real-time priority";
    case ProgramStep::kForeign:
      return "close what is not its own";
    case ProgramStep::kGroups:
      return "join the control groups";
    case ProgramStep::kMounts:
      return "put the mounts where it finds them";
    case ProgramStep::kIdentity:
      return "become another user";
    case ProgramStep::kDescriptors:
      return "lay out its descriptors";
    case ProgramStep::kExecute:
      break;
  }
  return "execute it";
}

void reap(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::string place_of_mount(const ProgramRequest& request, std::size_t index) {
  return request.staging + "/" + std::to_string(index);
}

Result<Program> start_program(const ProgramRequest& request) {
  int ends[2] = {-1, -1};
  if (::pipe2(&ends[0], O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd report(ends[0]);
  UniqueFd report_write(ends[1]);
  std::vector<const char*> arguments;
  for (const std::string& argument : request.arguments) {
    arguments.push_back(argument.c_str());
  }
  arguments.push_back(nullptr);
  std::vector<std::string> places;
  for (std::size_t i = 0; i < request.mounts.size(); ++i) {
    places.push_back(place_of_mount(request, i));
  }
  std::vector<ProgramPlan::Mount> mounts;
  for (std::size_t i = 0; i < request.mounts.size(); ++i) {
    mounts.push_back({request.mounts[i].mount,
                      request.mounts[i].kind == ProgramRequest::PlacedMount::Kind::kFile,
                      places[i].c_str()});
  }
  std::vector<int> descriptors = request.descriptors;
  ProgramPlan plan;
  plan.path = request.path.c_str();
  plan.arguments = arguments.data();
  plan.descriptors = descriptors;
  plan.output = request.output;
  plan.errors = request.errors;
  plan.report = report_write.get();
  plan.group = request.group;
  plan.join = request.join;
  plan.staging = request.staging.c_str();
  plan.mounts = mounts;
  plan.changes_id = request.id.has_value();
  plan.id = request.id.value_or(0);
  plan.further_groups = request.further_group.has_value() ? 1 : 0;
  plan.further_group = request.further_group.value_or(0);

  std::vector<int> kept = request.descriptors;
  kept.insert(kept.end(), request.join.begin(), request.join.end());
  for (const ProgramPlan::Mount& mount : mounts) {
    kept.push_back(mount.mount);
  }
  kept.insert(kept.end(), {request.output, request.errors, request.group, plan.report});
  std::erase_if(kept, [](int fd) { return fd < 0; });
  std::sort(kept.begin(), kept.end());
  plan.kept = kept;

  // Whoever cannot be watched is not started: ended in the middle of what it does, a runtime leaves
  // its mounts on the host. The descriptor keeps a number free for the one of the program.
  UniqueFd watched(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!watched.valid()) {
    return Error{Code::kSystem, errno, "watch " + request.path, {}};
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    become_program(plan);
  }
  if (pid < 0) {
    return system_error("start " + request.path);
  }
  report_write.reset();
  watched.reset();
  Program program;
  program.pid = pid;
  // It cannot be another's: nobody has waited for it.
  program.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int no_pidfd = program.pidfd.valid() ? 0 : errno;
  ProgramFailure failure{};
  ssize_t told;
  do {
    told = ::read(report.get(), &failure, sizeof failure);
  } while (told < 0 && errno == EINTR);
  if (told == static_cast<ssize_t>(sizeof failure)) {
    reap(pid);
    return Error{failure.error_number == ENOENT ? Code::kNotFound : Code::kSystem,
                 failure.error_number,
                 "start " + request.path + ": " + words_of(failure.step),
                 {}};
  }
  if (no_pidfd != 0) {
    ::kill(pid, SIGKILL);
    reap(pid);
    return Error{Code::kSystem, no_pidfd, "watch " + request.path, {}};
  }
  return program;
}

}  // namespace carrel::kernel
