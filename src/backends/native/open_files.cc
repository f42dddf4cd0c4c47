#include "backends/native/open_files.h"

#include <fcntl.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::native {

namespace {

// More than a shell with a few programs has; what is looked at keeps the keeper from others.
constexpr std::size_t kMostProcesses = 256;
constexpr std::size_t kMostLooks = 4096;
constexpr std::size_t kLargestList = 1U << 20;

constexpr int kOctal = 8;
constexpr int kDecimal = 10;
constexpr int kHex = 16;

std::string_view take_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  return line;
}

// Reads a number, and returns where the next word begins.
std::size_t skip_number(std::string_view line, std::size_t at, unsigned& number) {
  const char* const end = line.data() + line.size();
  const auto read = std::from_chars(line.data() + std::min(at, line.size()), end, number);
  return static_cast<std::size_t>(read.ptr - line.data()) + 1;
}

// "major:minor"
std::optional<dev_t> device_at(std::string_view line, std::size_t at, int base) {
  const char* const end = line.data() + line.size();
  unsigned major = 0;
  unsigned minor = 0;
  const auto first = std::from_chars(line.data() + std::min(at, line.size()), end, major, base);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':' ||
      std::from_chars(first.ptr + 1, end, minor, base).ec != std::errc()) {
    return std::nullopt;
  }
  return makedev(major, minor);
}

// What a line with that key says.
std::optional<unsigned> value_of(std::string_view text, std::string_view key, int base) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (!line.starts_with(key)) {
      continue;
    }
    line.remove_prefix(std::min(line.find_first_not_of(" \t", key.size()), line.size()));
    unsigned value = 0;
    const auto read = std::from_chars(line.data(), line.data() + line.size(), value, base);
    return read.ec == std::errc() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

class Search {
 public:
  explicit Search(dev_t device) : device_(device) {}

  bool finds_below(pid_t first) {
    std::vector<std::string> waiting{std::to_string(first)};
    for (std::size_t next = 0; next < waiting.size(); ++next) {
      const UniqueFd process(
          ::open(("/proc/" + waiting[next]).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!process.valid() || waiting.size() > kMostProcesses || shares(process.get()) ||
          !find_mounts(process.get())) {
        return true;
      }
      const UniqueFd tasks(::openat(process.get(), "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      const auto threads =
          tasks.valid() ? list_directory(tasks.get()) : Result<std::vector<std::string>>(Error{});
      if (!threads.ok()) {
        return true;
      }
      for (const std::string& thread : threads.value()) {
        if (has_open(tasks.get(), thread) || !add_children(tasks.get(), thread, waiting)) {
          return true;
        }
      }
    }
    return false;
  }

 private:
  static bool add_children(int tasks, const std::string& thread, std::vector<std::string>& to) {
    const auto children = read_file_at(tasks, thread + "/children", kLargestList);
    if (!children.ok()) {
      return false;
    }
    std::string_view rest = children.value();
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      if (end > 0) {
        to.emplace_back(rest.substr(0, end));
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return true;
  }

  // Which mounts of the process are of the device.
  bool find_mounts(int process) {
    mounts_.clear();
    const auto table = read_file_at(process, "mountinfo", kLargestList);
    if (!table.ok()) {
      return false;
    }
    for (std::string_view rest = table.value(); !rest.empty();) {
      const std::string_view line = take_line(rest);
      unsigned mount = 0;
      unsigned parent = 0;
      // "mount parent major:minor root target …"
      const std::size_t device = skip_number(line, skip_number(line, 0, mount), parent);
      const auto found = device_at(line, device, kDecimal);
      if (!found.has_value()) {
        return false;
      }
      if (*found == device_) {
        mounts_.insert(mount);
      }
    }
    return true;
  }

  // A file of the device is reached through a mount of it that the process has.
  bool has_open(int tasks, const std::string& thread) {
    const UniqueFd all(
        ::openat(tasks, (thread + "/fdinfo").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto names =
        all.valid() ? list_directory(all.get()) : Result<std::vector<std::string>>(Error{});
    if (!names.ok() || (looks_ += names.value().size()) > kMostLooks) {
      return true;
    }
    for (const std::string& name : names.value()) {
      const auto info = read_file_at(all.get(), name, kLargestList);
      const auto flags = info.ok() ? value_of(info.value(), "flags:", kOctal) : std::nullopt;
      const auto mount = info.ok() ? value_of(info.value(), "mnt_id:", kDecimal) : std::nullopt;
      if (!flags.has_value() || !mount.has_value() ||
          ((*flags & O_ACCMODE) != O_RDONLY && mounts_.contains(*mount))) {
        return true;
      }
    }
    return false;
  }

  // A line is "from-to rwxs offset major:minor inode path".
  bool shares(int process) {
    const auto maps = read_file_at(process, "maps", kLargestList);
    if (!maps.ok()) {
      return true;
    }
    std::string_view rest = maps.value();
    while (!rest.empty()) {
      const std::string_view line = take_line(rest);
      if (++looks_ > kMostLooks || is_shared(line)) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] bool is_shared(std::string_view line) const {
    constexpr std::size_t kSharing = 3;
    const std::size_t rights = line.find(' ');
    const std::size_t offset = rights == line.npos ? line.npos : line.find(' ', rights + 1);
    const std::size_t device = offset == line.npos ? line.npos : line.find(' ', offset + 1);
    if (device == line.npos) {
      return true;
    }
    if (line[rights + 1 + kSharing] != 's') {
      return false;
    }
    const auto found = device_at(line, device + 1, kHex);
    return !found.has_value() || *found == device_;
  }

  dev_t device_;
  std::set<unsigned> mounts_;  // of the process that is looked at
  std::size_t looks_ = 0;
};

}  // namespace

bool may_write_unseen(pid_t first, dev_t device) { return Search(device).finds_below(first); }

}  // namespace carrel::native
