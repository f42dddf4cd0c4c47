// What is written down of a long-lived sandbox, and whether it is still true.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "base/files.h"
#include "storage/box.h"

namespace carrel::storage {

namespace {

template <typename Number>
Number to_number(std::string_view text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

Error no_such_box(const std::string& named) {
  return Error{Code::kNotFound, 0, "Sandbox " + named + " not found",
               "'carrel ls' shows the ones there are"};
}

std::uint64_t start_time_of(pid_t pid) {
  auto line = read_file_at(AT_FDCWD, "/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!line.ok()) {
    return 0;
  }
  std::string_view rest = line.value();
  std::size_t at = rest.rfind(')');  // the name before it can hold anything
  if (at == std::string_view::npos) {
    return 0;
  }
  rest.remove_prefix(at + 1);
  for (int field = 2; field < 22; ++field) {
    std::size_t space = rest.find(' ');
    if (space == std::string_view::npos) {
      return 0;
    }
    rest.remove_prefix(space + 1);
    if (field == 2 && (rest.starts_with('Z') || rest.starts_with('X'))) {
      return 0;  // it has ended and nobody has asked for its status yet
    }
  }
  return to_number<std::uint64_t>(rest.substr(0, rest.find(' ')));
}

std::string boot_id() {
  // No process outlives a boot.
  static const std::string known = [] {
    auto id = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64);
    return id.ok() ? id.value().substr(0, 36) : std::string();
  }();
  return known;
}

Status write_draft(const Home& home, const BoxRecord& record) {
  std::string text;
  auto line = [&](std::string_view key, std::string_view value) {
    text.append(key).append("=").append(value).append("\n");
  };
  line("id", record.id);
  line("name", record.name);
  line("pid", std::to_string(record.pid));
  line("start_time", std::to_string(record.start_time));
  line("boot_id", record.boot_id);
  line("timeout_ms", std::to_string(record.timeout_ms));
  line("workdir", record.workdir);
  line("cgroup_parent", record.cgroup_parent);
  // Of processes that are gone after the host has gone down: it need not be on disk before.
  CARREL_ASSIGN(const UniqueFd file, open_at(home.boxes(), record.id + "/draft",
                                             O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  return write_all(file.get(), text);
}

Status touch_draft(const Home& home, const std::string& id) {
  if (::utimensat(home.boxes(), (id + "/draft").c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("touch the draft of sandbox " + id);
  }
  return {};
}

Status publish_draft(const Home& home, const std::string& id) {
  if (::renameat(home.boxes(), (id + "/draft").c_str(), home.boxes(), (id + "/record").c_str()) !=
      0) {
    return system_error("publish the record of sandbox " + id);
  }
  return {};
}

namespace {

Result<BoxRecord> read_from(const Home& home, const std::string& id, const char* file) {
  auto text = read_file_at(home.boxes(), id + "/" + file, 16384);
  if (!text.ok()) {
    return text.error().error_number == ENOENT ? no_such_box(id) : text.error();
  }
  BoxRecord record;
  std::string_view rest = text.value();
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      continue;
    }
    std::string_view key = line.substr(0, equals);
    std::string_view value = line.substr(equals + 1);
    if (key == "id") {
      record.id = value;
    } else if (key == "name") {
      record.name = value;
    } else if (key == "pid") {
      record.pid = to_number<pid_t>(value);
    } else if (key == "start_time") {
      record.start_time = to_number<std::uint64_t>(value);
    } else if (key == "boot_id") {
      record.boot_id = value;
    } else if (key == "timeout_ms") {
      record.timeout_ms = to_number<std::int64_t>(value);
    } else if (key == "workdir") {
      record.workdir = value;
    } else if (key == "cgroup_parent") {
      record.cgroup_parent = value;
    }
  }
  if (record.id != id || record.pid <= 0 || record.timeout_ms <= 0) {
    return Error{Code::kConflict, 0, "the record of sandbox " + id + " is damaged", {}};
  }
  return record;
}

}  // namespace

Result<BoxRecord> read_draft(const Home& home, const std::string& id) {
  return read_from(home, id, "draft");
}

Result<BoxRecord> read_record(const Home& home, const std::string& id) {
  return read_from(home, id, "record");
}

bool is_alive(const BoxRecord& record) {
  return record.boot_id == boot_id() && record.start_time != 0 &&
         start_time_of(record.pid) == record.start_time;
}

}  // namespace carrel::storage
