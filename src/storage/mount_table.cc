#include "storage/mount_table.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/files.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kLargestTable = 64U << 20;

Error bad_table() {
  return Error{Code::kSystem, 0, "the table of mounts has a line that makes no sense", {}};
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// Blanks, newlines and backslashes are three octal digits after a backslash.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string_view next_field(std::string_view& line) {
  const std::string_view field = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(field.size() + 1, line.size()));
  return field;
}

Result<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return bad_table();
  }
  return number;
}

// "36 35 98:0 /root /mount/point rw,noatime shared:1 - ext3 /dev/sda1 rw"
Result<HostMount> parse_line(std::string_view line) {
  HostMount mount;
  CARREL_ASSIGN(mount.id, parse_number(next_field(line)));
  next_field(line);
  mount.device = next_field(line);
  mount.root = unescaped(next_field(line));
  mount.mount_point = unescaped(next_field(line));
  next_field(line);
  while (!line.empty() && next_field(line) != "-") {
  }
  mount.file_system = unescaped(next_field(line));
  if (mount.device.empty() || mount.mount_point.empty() || mount.file_system.empty()) {
    return bad_table();
  }
  return mount;
}

Result<std::uint64_t> mount_id(int fd) {
  CARREL_ASSIGN(std::string text,
                read_file_at(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(fd)));
  constexpr std::string_view kKey = "mnt_id:\t";
  const std::size_t at = text.find(kKey);
  if (at == std::string::npos) {
    return Error{Code::kUnsupported, 0, "this kernel does not say which mount a file is on", {}};
  }
  const std::string_view rest = std::string_view(text).substr(at + kKey.size());
  return parse_number(rest.substr(0, rest.find('\n')));
}

// The path of an open file, if that is where it still is.
Result<std::string> path_of(int fd) {
  std::array<char, PATH_MAX + 1> buffer{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), buffer.data(), buffer.size());
  if (length < 0) {
    return system_error("read '" + link + "'", "/proc has to be mounted");
  }
  std::string path(buffer.data(), static_cast<std::size_t>(length));
  struct stat open_file{};
  struct stat named{};
  if (length > PATH_MAX || path.front() != '/' || ::fstat(fd, &open_file) != 0 ||
      ::lstat(path.c_str(), &named) != 0 || open_file.st_dev != named.st_dev ||
      open_file.st_ino != named.st_ino) {
    return Error{Code::kConflict, 0, "'" + path + "' was changed while it was looked at",
                 "try again"};
  }
  return path;
}

}  // namespace

Result<std::vector<HostMount>> parse_mountinfo(std::string_view text) {
  std::vector<HostMount> table;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    CARREL_ASSIGN(HostMount mount, parse_line(line));
    table.push_back(std::move(mount));
  }
  return table;
}

Result<std::vector<HostMount>> read_mount_table() {
  CARREL_ASSIGN(std::string text, read_file_at(AT_FDCWD, "/proc/self/mountinfo", kLargestTable));
  return parse_mountinfo(text);
}

Result<policy::Location> locate(int fd, const std::vector<HostMount>& table) {
  policy::Location location;
  CARREL_ASSIGN(location.path, path_of(fd));
  CARREL_ASSIGN(const std::uint64_t id, mount_id(fd));
  const auto mount =
      std::find_if(table.begin(), table.end(), [&](const HostMount& one) { return one.id == id; });
  if (mount == table.end() || !policy::path_holds(mount->mount_point, location.path)) {
    return Error{Code::kConflict, 0, "'" + location.path + "' is on a mount that is not known",
                 "it may have been mounted or unmounted just now: try again"};
  }
  const std::size_t above = mount->mount_point == "/" ? 0 : mount->mount_point.size();
  location.device = mount->device;
  location.path_on_device = policy::folded_path(mount->root + "/" + location.path.substr(above));
  location.file_system = mount->file_system;
  return location;
}

}  // namespace carrel::storage
