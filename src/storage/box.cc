#include "storage/box.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/files.h"
#include "base/unix_socket.h"

namespace carrel::storage {

std::vector<std::string> box_ids(const Home& home) {
  std::vector<std::string> ids;
  (void)each_visible_entry_at(home.boxes(), ".",
                              [&](const dirent& entry) { ids.emplace_back(entry.d_name); });
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<BoxRecord> find_box(const Home& home, const std::string& named) {
  if (named.empty() || named.find('/') != std::string::npos || named[0] == '.') {
    return no_such_box(named);
  }
  auto exact = read_record(home, named);
  if (exact.ok() || exact.error().code != Code::kNotFound) {
    return exact;
  }
  // CRITICAL: whoever says a whole id means that one. Anybody may have given it to another as a
  // name.
  if (is_id(named)) {
    return no_such_box(named);
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
    return Error{
        Code::kInvalid, 0,
        "'" + named + "' could be any of " + std::to_string(candidates.size()) + " sandboxes",
        "give more of the id"};
  }
  if (candidates.empty()) {
    return no_such_box(named);
  }
  return candidates.front();
}

namespace {

Result<UniqueFd> bind_socket(const UniqueFd& directory) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = socket_address(directory.get(), "socket");
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("bind the sandbox's socket");
  }
  return socket;
}

// Whether the open directory is still the one of that name.
bool is_box(const Home& home, const std::string& id, const UniqueFd& directory) {
  struct stat named{};
  struct stat held{};
  return ::fstatat(home.boxes(), id.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(directory.get(), &held) == 0 && named.st_dev == held.st_dev &&
         named.st_ino == held.st_ino;
}

}  // namespace

Result<UniqueFd> lock_box(const Home& home, const std::string& id, int patience_ms) {
  constexpr int kStepMs = 2;
  auto directory = open_at(home.boxes(), id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory.ok()) {
    return directory.error().error_number == ENOENT ? no_such_box(id) : directory.error();
  }
  for (int waited = 0; ::flock(directory.value().get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return system_error("lock the sandbox's run-time directory");
    }
    if (waited >= patience_ms) {
      return Error{Code::kConflict, 0, "sandbox " + id + " is being made or removed",
                   "try again in a moment"};
    }
    ::usleep(kStepMs * 1000);
    waited += kStepMs;
  }
  if (!is_box(home, id, directory.value())) {
    return no_such_box(id);
  }
  return directory;
}

Result<NewBox> make_box(const Home& home, const std::string& id) {
  constexpr int kTries = 2000;
  NewBox box;
  // A sweep can find the directory before the lock is on it, and take it for an abandoned one; on a
  // busy host many sweeps, one after the other. Nothing is waited for but for who is at work on it.
  for (int tries = 0; !box.lock.valid(); ++tries) {
    if (::mkdirat(home.boxes(), id.c_str(), 0700) != 0 && (errno != EEXIST || tries == 0)) {
      return system_error("make the sandbox's run-time directory");
    }
    auto lock = lock_box(home, id, 1000);
    if (lock.ok()) {
      box.lock = std::move(lock.value());
    } else if (lock.error().code != Code::kNotFound || tries == kTries) {
      return lock.error();
    }
  }
  auto bound = bind_socket(box.lock);
  if (!bound.ok()) {
    (void)remove_box(home, id);
    return bound.error();
  }
  box.socket = std::move(bound.value());
  return box;
}

Status note_groups(const Home& home, const std::string& id, const std::string& parent) {
  if (parent.empty()) {
    return {};
  }
  CARREL_ASSIGN(const UniqueFd file, open_at(home.boxes(), id + "/groups",
                                             O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  return write_all(file.get(), parent);
}

std::string noted_groups(const Home& home, const std::string& id) {
  auto parent = read_file_at(home.boxes(), id + "/groups", 4096);
  return parent.ok() ? parent.value() : std::string();
}

Status note_end(const Home& home, const std::string& id, const std::string& reason) {
  return replace_file_at(home.boxes(), id + "/ending", reason, 0600);
}

std::string noted_end(const Home& home, const std::string& id) {
  auto reason = read_file_at(home.boxes(), id + "/ending", 4096);
  if (!reason.ok()) {
    return {};
  }
  return reason.value().empty() ? "it was removed" : reason.value();
}

bool is_id(std::string_view text) {
  if (text.size() != 36) {
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (dash ? text[i] != '-' : !hex) {
      return false;
    }
  }
  return true;
}

Result<UniqueFd> connect_box(const Home& home, const BoxRecord& record) {
  Error gone{Code::kGone, 0, "sandbox " + record.id + " has ended", "'carrel info' says why"};
  auto directory = open_at(home.boxes(), record.id, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!directory.ok() || !socket.valid()) {
    return directory.ok() ? system_error("make a socket") : gone;
  }
  sockaddr_un address = socket_address(directory.value().get(), "socket");
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
    return Error{
        Code::kGone, 0, "the socket of sandbox " + record.id + " is not held by its guest", {}};
  }
  return socket;
}

Status remove_box(const Home& home, const std::string& id) {
  return remove_tree_at(home.boxes(), id);
}

}  // namespace carrel::storage
