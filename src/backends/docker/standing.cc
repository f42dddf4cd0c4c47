#include "backends/docker/standing.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "backends/docker/anchor.h"
#include "backends/docker/ferry.h"
#include "base/files.h"
#include "kernel/program.h"
#include "sandbox/builder.h"

namespace carrel::docker {

namespace {

constexpr int kStartMs = 5'000;
constexpr std::size_t kLargestRequest = 8192;
constexpr char kCovered[] = "/tmp";

}  // namespace

Status leave_host() {
  if (::mount("tmpfs", kCovered, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
              "size=4k,mode=0555") != 0 ||
      ::chdir(kCovered) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) {
    return system_error("leave the host's root");
  }
  return {};
}

Result<Standing> start_standing(const sandbox::RoomRequest& request,
                                const std::vector<std::string>& lines,
                                const std::vector<int>& given) {
  std::array<int, 2> tell{};
  if (::pipe2(tell.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  const UniqueFd told(tell[0]);
  UniqueFd teller(tell[1]);
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  CARREL_ASSIGN(const UniqueFd asked, sandbox::memory_file(text));
  Standing standing;
  CARREL_ASSIGN(standing.complaints, sandbox::memory_file({}));
  kernel::ProgramRequest program;
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "porch", "docker"};
  program.descriptors = {asked.get(), teller.get()};
  program.descriptors.insert(program.descriptors.end(), given.begin(), given.end());
  program.errors = standing.complaints.get();
  program.group = request.group;
  program.join = request.join;
  CARREL_ASSIGN(const kernel::Program started, kernel::start_program(program));
  teller.reset();
  standing.above = started.pid;
  sandbox::FirstProcess first = sandbox::await_first_process(told.get(), kStartMs);
  standing.pid = first.pid;
  standing.process = std::move(first.process);
  if (!standing.process.valid()) {
    ::kill(started.pid, SIGKILL);
    while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    const std::string why = sandbox::read_line(standing.complaints.get());
    return Error{Code::kUnsupported, 0,
                 "Failed to create sandbox: " +
                     (why.empty() ? std::string("what stands for it did not start") : why),
                 "run 'carrel doctor'"};
  }
  return standing;
}

Result<std::vector<std::string>> read_standing_request() {
  CARREL_ASSIGN(const std::string text, read_file_at(AT_FDCWD, "/proc/self/fd/3", kLargestRequest));
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

int run_standing() {
  const auto stand = []() -> Status {
    CARREL_ASSIGN(const std::vector<std::string> lines, read_standing_request());
    if (lines.size() == kAnchorLines && lines[0] == kAnchorRole) {
      return be_anchor(lines);
    }
    if (lines.size() == kFerryLines && lines[0] == kFerryRole) {
      return be_ferry(lines);
    }
    return Error{Code::kInvalid, 0, "this program is started by itself", {}};
  };
  const Status stood = stand();
  if (!stood.ok()) {
    (void)write_all(STDERR_FILENO, stood.error().to_string() + "\n");
  }
  return stood.ok() ? 0 : 1;
}

}  // namespace carrel::docker
