#include "guest/proc.h"

#include <fcntl.h>
#include <unistd.h>

#include "guest/runtime.h"

namespace carrel::guest {

bool to_number(std::string_view text, std::uint64_t& value) {
  if (text.empty() || text.size() > 19) {
    return false;
  }
  value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') {
      return false;
    }
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return true;
}

std::size_t read_proc(const char* path, char* buffer, std::size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return 0;
  }
  ssize_t n = read(fd, buffer, size);
  close(fd);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

std::size_t read_proc(pid_t pid, const char* name, char* buffer, std::size_t size) {
  Text<64> path;
  path.add("/proc/").add_number(static_cast<std::uint64_t>(pid)).add("/").add(name);
  return read_proc(path.c_str(), buffer, size);
}

}  // namespace carrel::guest
