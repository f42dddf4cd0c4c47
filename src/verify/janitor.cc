#include "verify/janitor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "verify/janitor_child.h"

namespace carrel::verify {

Result<Janitor> Janitor::start(std::vector<std::string> files, std::string folder) {
  Litter litter;
  if (files.size() > Litter::kMost) {
    return Error{Code::kInvalid, 0, "too many files are to be planted", {}};
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    litter.files[i] = files[i].c_str();
  }
  litter.folder = folder.c_str();
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  UniqueFd read_end(pipe[0]);
  UniqueFd write_end(pipe[1]);
  const pid_t pid = ::fork();
  if (pid < 0) {
    return system_error("make the process that tidies up");
  }
  if (pid == 0) {
    be_janitor(read_end.get(), litter);
  }
  return Janitor(pid, std::move(write_end));
}

Janitor::Janitor(Janitor&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pipe_(std::move(other.pipe_)) {}

Janitor::~Janitor() {
  if (pid_ > 0) {
    pipe_.reset();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace carrel::verify
