#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "guest/machine.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

bool load_module(std::string_view path, Failure& failure) {
  Path name;
  name.add(path);
  int file = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  const long loaded = file < 0 ? -1 : syscall(SYS_finit_module, file, "", 0);
  const int reason = errno;
  if (file >= 0) {
    close(file);
  }
  return loaded == 0 || reason == EEXIST || failure.at("load", "a module of its kernel", -reason);
}

}  // namespace

bool load_modules(Failure& failure) {
  static char text[16U << 10];
  int list = open(kMachineModules, O_RDONLY | O_CLOEXEC);
  const ssize_t size = list < 0 ? -1 : read(list, text, sizeof text);
  if (size < 0) {
    return failure.at("read", "the list of modules", -errno);
  }
  close(list);
  std::string_view rest(text, static_cast<std::size_t>(size));
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view path = part(rest, 0, end);
    if (!path.empty() && !load_module(path, failure)) {
      return false;
    }
    rest = end == std::string_view::npos ? std::string_view() : part(rest, end + 1);
  }
  return true;
}

std::uint64_t count_kills(int vmstat) {
  static char text[32U << 10];
  const ssize_t size = pread(vmstat, text, sizeof text, 0);
  constexpr std::string_view kWord = "\noom_kill ";
  const std::string_view all(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t at = all.find(kWord);
  std::uint64_t count = 0;
  for (const char c : part(all, at == std::string_view::npos ? all.size() : at + kWord.size())) {
    if (c < '0' || c > '9') {
      break;
    }
    count = count * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return count;
}

}  // namespace carrel::guest
