#include "egress/registration.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/unix_socket.h"
#include "storage/box.h"

namespace carrel::egress {

namespace {

constexpr const char* kFile = "registration";
constexpr const char* kSocket = "socket";
constexpr const char* kPorterSocket = "porter";
constexpr std::size_t kLargest = 1U << 20;
constexpr int kRegistrationBacklog = 64;

Result<UniqueFd> open_place(const storage::Home& home) {
  auto there = open_at(home.directory(), kRegistrations, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (there.ok() || there.error().error_number != ENOENT) {
    return there;
  }
  if (::mkdirat(home.directory(), kRegistrations, 0700) != 0 && errno != EEXIST) {
    return system_error("make '" + std::string(kRegistrations) + "'");
  }
  return open_at(home.directory(), kRegistrations, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// The old file or the new one for whoever looks; the first is there before anybody is told to. Not
// synced: after a crash of the machine there is no sandbox that it could be about.
Status replace_quickly(int directory, const std::string& text) {
  if (auto first = open_at(directory, kFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
      first.ok()) {
    return write_all(first.value().get(), text);
  }
  const std::string temporary = std::string(kFile) + "." + std::to_string(::getpid()) + ".new";
  CARREL_ASSIGN(const UniqueFd fd,
                open_at(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  CARREL_TRY(write_all(fd.get(), text));
  if (::renameat(directory, temporary.c_str(), directory, kFile) != 0) {
    return system_error("rename the sandbox's network registration");
  }
  return {};
}

storage::BoxRecord record_of(const Registration& registration) {
  storage::BoxRecord record;
  record.id = registration.id;
  record.pid = registration.pid;
  record.start_time = registration.start_time;
  record.boot_id = storage::boot_id();
  return record;
}

Error damaged(const std::string& id) {
  return Error{Code::kSystem, 0, "the network registration of sandbox " + id + " is damaged", {}};
}

}  // namespace

Result<UniqueFd> open_registration(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(const UniqueFd place, open_place(home));
  if (::mkdirat(place.get(), id.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("make the directory of the sandbox's network");
  }
  return open_at(place.get(), id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<UniqueFd> find_registration(const storage::Home& home, const std::string& id) {
  return open_at(home.directory(), std::string(kRegistrations) + "/" + id,
                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Status make_registrations(const storage::Home& home) {
  CARREL_TRY(open_place(home));
  return {};
}

bool is_registered(const storage::Home& home, const std::string& id) {
  const std::string path = std::string(kRegistrations) + "/" + id + "/" + kFile;
  return ::faccessat(home.directory(), path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Status write_registration(const storage::Home& home, const Registration& registration) {
  CARREL_ASSIGN(const UniqueFd directory, open_registration(home, registration.id));
  // An id has nothing in it that would have to be escaped.
  const bool long_lived = registration.kind == Registration::Kind::kLongLived;
  const bool porter = registration.way == Registration::Way::kPorter;
  const bool porch = registration.way == Registration::Way::kPorch;
  const std::string policy = nlohmann::json(policy::network_to_json(registration.policy)).dump();
  return replace_quickly(
      directory.get(),
      R"({"id":")" + registration.id + R"(","long_lived":)" + (long_lived ? "true" : "false") +
          R"(,"porter":)" + (porter ? "true" : "false") + R"(,"porch":)" +
          (porch ? "true" : "false") + R"(,"pid":)" + std::to_string(registration.pid) +
          R"(,"start_time":)" + std::to_string(registration.start_time) + R"(,"policy":)" + policy +
          "}");
}

Result<Registration> read_registration(const storage::Home& home, const std::string& id) {
  if (!storage::is_id(id)) {
    return Error{Code::kInvalid, 0, "that is no id of a sandbox", {}};
  }
  CARREL_ASSIGN(const UniqueFd place, open_place(home));
  auto text = read_file_at(place.get(), id + "/" + kFile, kLargest);
  if (!text.ok()) {
    return text.error().error_number == ENOENT
               ? Error{Code::kNotFound, 0, "sandbox " + id + " has no network", {}}
               : text.error();
  }
  const auto object = nlohmann::json::parse(text.value(), nullptr, false);
  if (!object.is_object() || object.value("id", "") != id || !object.contains("policy") ||
      !object["policy"].is_string()) {
    return damaged(id);
  }
  Registration registration;
  registration.id = id;
  registration.kind = object.value("long_lived", false) ? Registration::Kind::kLongLived
                                                        : Registration::Kind::kOneShot;
  registration.way = object.value("porter", false)  ? Registration::Way::kPorter
                     : object.value("porch", false) ? Registration::Way::kPorch
                                                    : Registration::Way::kSockets;
  registration.pid = object.value("pid", 0);
  registration.start_time = object.value("start_time", std::uint64_t{0});
  CARREL_ASSIGN(registration.policy,
                policy::network_from_json(object["policy"].get<std::string>()));
  return registration;
}

void remove_registration(const storage::Home& home, const std::string& id) {
  auto place = open_at(home.directory(), kRegistrations, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (place.ok()) {
    (void)remove_tree_at(place.value().get(), id);
  }
}

std::vector<std::string> registered_ids(const storage::Home& home) {
  std::vector<std::string> ids;
  if (auto place = open_place(home); place.ok()) {
    (void)each_visible_entry_at(place.value().get(), ".", [&](const dirent& entry) {
      if (storage::is_id(entry.d_name)) {
        ids.emplace_back(entry.d_name);
      }
    });
  }
  return ids;
}

Result<UniqueFd> bind_guest_socket(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(const UniqueFd directory, open_registration(home, id));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(directory.get(), kSocket);
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), kRegistrationBacklog) != 0) {
    return system_error("bind the sandbox's socket");
  }
  return socket;
}

Result<UniqueFd> bind_porter_socket(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(const UniqueFd directory, open_registration(home, id));
  // An attempt to make it may have failed before.
  ::unlinkat(directory.get(), kPorterSocket, 0);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(directory.get(), kPorterSocket);
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("bind the socket of the sandbox's network");
  }
  return socket;
}

Result<UniqueFd> connect_porter(const storage::Home& home, const Registration& registration) {
  const Error gone{Code::kGone, 0, "sandbox " + registration.id + " has ended", {}};
  CARREL_ASSIGN(const UniqueFd directory, find_registration(home, registration.id));
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(directory.get(), kPorterSocket);
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno == ECONNREFUSED || errno == ENOENT
               ? gone
               : system_error("connect to the network of sandbox " + registration.id);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.pid != registration.pid || !is_alive(registration)) {
    return gone;
  }
  return socket;
}

bool is_alive(const Registration& registration) {
  return storage::is_alive(record_of(registration));
}

Result<UniqueFd> connect_guest(const storage::Home& home, const Registration& registration) {
  const storage::BoxRecord record = record_of(registration);
  if (registration.kind == Registration::Kind::kLongLived) {
    return storage::connect_box(home, record);
  }
  const Error gone{Code::kGone, 0, "sandbox " + registration.id + " has ended", {}};
  CARREL_ASSIGN(const UniqueFd directory, find_registration(home, registration.id));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = socket_address(directory.get(), kSocket);
  if (!socket.valid() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno == ECONNREFUSED || errno == ENOENT
               ? gone
               : system_error("connect to sandbox " + registration.id);
  }
  // Until the guest has begun, the socket is listened at by whoever made it: this user.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (peer.pid != registration.pid && peer.uid != ::geteuid()) || !storage::is_alive(record)) {
    return gone;
  }
  return socket;
}

}  // namespace carrel::egress
