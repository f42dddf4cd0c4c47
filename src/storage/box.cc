#include "storage/box.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/files.h"

namespace carrel::storage {

namespace {

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

template <typename Number>
Number to_number(std::string_view text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Error not_found(const std::string& named) {
  return Error{Code::kNotFound, 0, "Sandbox " + named + " not found",
               "'carrel ls' shows the ones there are"};
}

// A socket's path ends at 108 bytes; through a descriptor it is always short.
sockaddr_un socket_address(int directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/socket";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace

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
  auto id = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64);
  return id.ok() ? id.value().substr(0, 36) : std::string();
}

Status write_record(const Home& home, const BoxRecord& record) {
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
  return replace_file_at(home.boxes(), record.id + "/record", text, 0600);
}

Result<BoxRecord> read_record(const Home& home, const std::string& id) {
  auto text = read_file_at(home.boxes(), id + "/record", 16384);
  if (!text.ok()) {
    return text.error().error_number == ENOENT ? not_found(id) : text.error();
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

std::vector<std::string> box_ids(const Home& home) {
  std::vector<std::string> ids;
  int fd = ::openat(home.boxes(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::unique_ptr<DIR, CloseDir> entries(fd < 0 ? nullptr : ::fdopendir(fd));
  while (entries) {
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr) {
      break;
    }
    if (entry->d_name[0] != '.') {
      ids.emplace_back(entry->d_name);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<BoxRecord> find_box(const Home& home, const std::string& named) {
  if (named.empty() || named.find('/') != std::string::npos || named[0] == '.') {
    return not_found(named);
  }
  auto exact = read_record(home, named);
  if (exact.ok() || exact.error().code != Code::kNotFound) {
    return exact;
  }
  std::vector<BoxRecord> candidates;
  for (const std::string& id : box_ids(home)) {
    auto record = read_record(home, id);
    if (!record.ok()) {
      continue;
    }
    if (record.value().name == named) {
      return record;
    }
    if (id.starts_with(named)) {
      candidates.push_back(std::move(record.value()));
    }
  }
  if (candidates.size() > 1) {
    return Error{Code::kInvalid, 0,
                 "'" + named + "' could be any of " + std::to_string(candidates.size()) +
                     " sandboxes",
                 "give more of the id"};
  }
  if (candidates.empty()) {
    return not_found(named);
  }
  return candidates.front();
}

bool is_alive(const BoxRecord& record) {
  return record.boot_id == boot_id() && record.start_time != 0 &&
         start_time_of(record.pid) == record.start_time;
}

Result<UniqueFd> bind_socket(const Home& home, const std::string& id) {
  if (::mkdirat(home.boxes(), id.c_str(), 0700) != 0) {
    return system_error("make the sandbox's run-time directory");
  }
  CARREL_ASSIGN(UniqueFd directory,
                open_at(home.boxes(), id, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = socket_address(directory.get());
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("bind the sandbox's socket");
  }
  return socket;
}

Result<UniqueFd> connect_box(const Home& home, const BoxRecord& record) {
  Error gone{Code::kGone, 0, "sandbox " + record.id + " has ended", "'carrel info' says why"};
  auto directory = open_at(home.boxes(), record.id, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!directory.ok() || !socket.valid()) {
    return directory.ok() ? system_error("make a socket") : gone;
  }
  sockaddr_un address = socket_address(directory.value().get());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno == ECONNREFUSED || errno == ENOENT
               ? gone
               : system_error("connect to sandbox " + record.id);
  }
  // Who listens is told by the kernel; that it is still the process of the record, by its start.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return system_error("identify the sandbox's guest");
  }
  if (peer.pid != record.pid || !is_alive(record)) {
    return Error{Code::kGone, 0,
                 "the socket of sandbox " + record.id + " is not held by its guest", {}};
  }
  return socket;
}

Status remove_box(const Home& home, const std::string& id) {
  return remove_tree_at(home.boxes(), id);
}

}  // namespace carrel::storage
