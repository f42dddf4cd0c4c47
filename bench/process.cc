#include "bench/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "base/files.h"
#include "bench/spawn_child.h"

namespace carrel::bench {

namespace {

constexpr std::size_t kChildStack = 64U << 10;
constexpr char kPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

int null_device() {
  static const int kNull = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  return kNull;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) {
    result.push_back(word.data());
  }
  result.push_back(nullptr);
  return result;
}

// Anything but exit status 0 is an error, with the last line of what it wrote to `errors`.
Status ended(int status, const std::string& program, int errors) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return {};
  }
  std::string message =
      program + (WIFEXITED(status) ? " ended with status " + std::to_string(WEXITSTATUS(status))
                                   : " was ended by signal " + std::to_string(WTERMSIG(status)));
  ::lseek(errors, 0, SEEK_SET);
  CARREL_ASSIGN(std::string text, read_all(errors));
  text.erase(text.find_last_not_of('\n') + 1);
  if (!text.empty()) {
    message += ": " + text.substr(text.rfind('\n') + 1);
  }
  return Error{Code::kSystem, 0, std::move(message), {}};
}

Result<int> reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) {
      return system_error("wait for a process");
    }
  }
  return status;
}

}  // namespace

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

std::string find_program(const std::string& name) {
  std::istringstream path(kPath + sizeof "PATH");
  std::string directory;
  while (std::getline(path, directory, ':')) {
    std::string candidate = directory + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return {};
}

Result<pid_t> start(const Launch& launch, const Descriptors& descriptors, Tracing tracing) {
  std::vector<std::string> arguments = launch.arguments;
  std::vector<std::string> environment = launch.environment;
  environment.emplace_back(kPath);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  UniqueFd group;
  if (!launch.group.empty()) {
    CARREL_ASSIGN(group, open_at(AT_FDCWD, launch.group, O_WRONLY));
  }
  ChildPlan plan;
  plan.program = arguments.front().c_str();
  plan.arguments = argument_pointers.data();
  plan.environment = environment_pointers.data();
  plan.input = descriptors.input >= 0 ? descriptors.input : null_device();
  plan.output = descriptors.output >= 0 ? descriptors.output : null_device();
  plan.error = descriptors.error >= 0 ? descriptors.error : null_device();
  plan.join = group.get();
  plan.traced = tracing == Tracing::kYes;
  if (launch.user.has_value()) {
    plan.switch_user = true;
    plan.uid = launch.user->uid;
    plan.gid = launch.user->gid;
  }
  static thread_local std::vector<char> stack(kChildStack);
  char* top = stack.data() + stack.size();
  top -= reinterpret_cast<std::uintptr_t>(top) % 16;
  const int pid = ::clone(child_main, top, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  if (pid < 0) {
    return system_error("start " + arguments.front());
  }
  if (plan.failed != 0) {
    (void)reap(pid);
    return system_error(plan.failed, "start " + arguments.front());
  }
  return pid;
}

Result<double> time_run(const Launch& launch) {
  static thread_local const UniqueFd kErrors(::memfd_create("error", MFD_CLOEXEC));
  if (!kErrors.valid() || ::ftruncate(kErrors.get(), 0) != 0) {
    return system_error("make a file for the errors");
  }
  ::lseek(kErrors.get(), 0, SEEK_SET);
  const double before = now_ms();
  CARREL_ASSIGN(const pid_t pid, start(launch, {-1, -1, kErrors.get()}));
  CARREL_ASSIGN(const int status, reap(pid));
  const double after = now_ms();
  CARREL_TRY(ended(status, launch.arguments.front(), kErrors.get()));
  return after - before;
}

Result<std::string> output_of(const Launch& launch) {
  UniqueFd output(::memfd_create("output", MFD_CLOEXEC));
  UniqueFd error(::memfd_create("error", MFD_CLOEXEC));
  if (!output.valid() || !error.valid()) {
    return system_error("make a file for the output");
  }
  CARREL_ASSIGN(const pid_t pid, start(launch, {-1, output.get(), error.get()}));
  CARREL_ASSIGN(const int status, reap(pid));
  CARREL_TRY(ended(status, launch.arguments.front(), error.get()));
  ::lseek(output.get(), 0, SEEK_SET);
  CARREL_ASSIGN(std::string text, read_all(output.get()));
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

Result<PipedProcess> PipedProcess::start(const Launch& launch) {
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  if (::pipe2(to.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd their_input(to[0]);
  PipedProcess process;
  process.input_.reset(to[1]);
  if (::pipe2(from.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  process.output_.reset(from[0]);
  UniqueFd their_output(from[1]);
  CARREL_ASSIGN(process.pid_, bench::start(launch, {their_input.get(), their_output.get(), -1}));
  return process;
}

PipedProcess::PipedProcess(PipedProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)) {}

PipedProcess& PipedProcess::operator=(PipedProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    input_ = std::move(other.input_);
    output_ = std::move(other.output_);
  }
  return *this;
}

Result<std::string> PipedProcess::ask(const std::string& text, const std::string& mark) {
  CARREL_TRY(write_all(input_.get(), text));
  std::string answer;
  std::array<char, 4096> piece{};
  while (!answer.ends_with(mark)) {
    const ssize_t n = ::read(output_.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return Error{Code::kGone, 0, "the shell on the pipe ended", {}};
    }
    answer.append(piece.data(), static_cast<std::size_t>(n));
  }
  return answer;
}

void PipedProcess::end() {
  input_.reset();
  output_.reset();
  if (pid_ < 0) {
    return;
  }
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) {
      pid_ = -1;
      return;
    }
    ::usleep(10'000);
  }
  ::kill(pid_, SIGKILL);
  (void)reap(pid_);
  pid_ = -1;
}

}  // namespace carrel::bench
