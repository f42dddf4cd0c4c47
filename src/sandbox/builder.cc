#include "sandbox/builder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/files.h"
#include "kernel/program.h"

namespace carrel::sandbox {

namespace {

using Identity = std::tuple<dev_t, ino_t, time_t>;

enum class Length { kLine, kWhole };

Result<std::string> output_of(const std::string& program, const char* argument, Length length) {
  CARREL_ASSIGN(const UniqueFd answer, memory_file({}));
  kernel::ProgramRequest request;
  request.path = program;
  request.arguments = {program, argument};
  request.output = answer.get();
  request.errors = length == Length::kWhole ? answer.get() : -1;
  CARREL_ASSIGN(const kernel::Program asked, kernel::start_program(request));
  while (::waitpid(asked.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  constexpr std::size_t kMost = 64U << 10;
  return length == Length::kLine
             ? Result<std::string>(read_line(answer.get()))
             : read_file_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(answer.get()), kMost);
}

// What it says is asked for again when it was replaced.
Result<std::string> ask(const std::string& program, const char* argument, Length length) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::pair<Identity, std::string>> known;
  struct stat info{};
  if (::stat(program.c_str(), &info) != 0) {
    return system_error("look at " + program);
  }
  const Identity identity{info.st_dev, info.st_ino, info.st_mtime};
  const std::pair<std::string, std::string> question{program, argument};
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(question);
        found != known.end() && found->second.first == identity) {
      return found->second.second;
    }
  }
  CARREL_ASSIGN(std::string text, output_of(program, argument, length));
  const std::lock_guard lock(mutex);
  known[question] = {identity, text};
  return text;
}

}  // namespace

Result<UniqueFd> memory_file(std::string_view content) {
  UniqueFd file(::memfd_create("builder", MFD_CLOEXEC));
  if (!file.valid()) {
    return system_error("make a memory file");
  }
  CARREL_TRY(write_all(file.get(), content));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) {
    return system_error("rewind a memory file");
  }
  return file;
}

std::string read_line(int file) {
  std::array<char, 512> buffer{};
  const ssize_t n = ::pread(file, buffer.data(), buffer.size(), 0);
  std::string text(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  for (char& c : text) {
    c = c < ' ' || c > '~' ? ' ' : c;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

FirstProcess await_first_process(int pipe, int timeout_ms) {
  std::array<char, 32> buffer{};
  pollfd told{pipe, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&told, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  const ssize_t n = ready == 1 ? ::read(pipe, buffer.data(), buffer.size()) : 0;
  FirstProcess first;
  if (n > 0) {
    std::from_chars(buffer.data(), buffer.data() + n, first.pid);
  }
  first.process.reset(first.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, first.pid, 0))
                                    : -1);
  return first;
}

Result<std::string> ask_version(const std::string& program) {
  return ask(program, "--version", Length::kLine);
}

Result<std::string> ask_flags(const std::string& program) {
  return ask(program, "flags", Length::kWhole);
}

}  // namespace carrel::sandbox
