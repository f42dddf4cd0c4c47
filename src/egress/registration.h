#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/network.h"
#include "storage/home.h"

namespace carrel::egress {

// That a sandbox has a network, and which: run/net/ID in the home. It is written before the egress
// process is told, and is all that the next one needs after the death of this one.
struct Registration {
  enum class Kind { kOneShot, kLongLived };
  // How its connections come: by sockets of its network, which its guest gives or, where none can
  // leave it, the porch around it; or one by one from the porter of its machine.
  enum class Way { kSockets, kPorch, kPorter };

  std::string id;
  Kind kind = Kind::kOneShot;
  Way way = Way::kSockets;
  pid_t pid = 0;                 // of the guest
  std::uint64_t start_time = 0;  // of that process
  policy::NetworkPolicy policy;
};

// Where they are in the home, each in a directory of its sandbox's id.
inline constexpr const char* kRegistrations = "run/net";
// The egress process as others find it in run/.
inline constexpr const char* kProcess = "egress";

// Makes the place where they are.
Status make_registrations(const storage::Home& home);
bool is_registered(const storage::Home& home, const std::string& id);
Status write_registration(const storage::Home& home, const Registration& registration);
Result<Registration> read_registration(const storage::Home& home, const std::string& id);
void remove_registration(const storage::Home& home, const std::string& id);
std::vector<std::string> registered_ids(const storage::Home& home);
// The directory of its own, made if it is missing; and only if there is one.
Result<UniqueFd> open_registration(const storage::Home& home, const std::string& id);
Result<UniqueFd> find_registration(const storage::Home& home, const std::string& id);

// A one-shot sandbox's guest listens only if it has a network: its socket. Whoever connects before
// the guest is there waits for it.
Result<UniqueFd> bind_guest_socket(const storage::Home& home, const std::string& id);
// Where the porter of a machine, or gVisor's porch, listens for the egress process; bound.
Result<UniqueFd> bind_porter_socket(const storage::Home& home, const std::string& id);
// Connects to it, and checks that it is the one. kGone: it has ended.
Result<UniqueFd> connect_porter(const storage::Home& home, const Registration& registration);
// Whether the guest lives.
bool is_alive(const Registration& registration);
// Connects to the guest, and checks that it is the one. kGone: it has ended.
Result<UniqueFd> connect_guest(const storage::Home& home, const Registration& registration);

}  // namespace carrel::egress
