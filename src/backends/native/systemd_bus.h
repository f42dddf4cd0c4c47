#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::native {

// The service manager of this user, asked over D-Bus: root's is the system's, anybody else's is
// their `systemd --user`. Nothing here waits longer than it was told to.

using BusDeadline = std::chrono::steady_clock::time_point;

// A place where a service manager may listen.
struct BusAddress {
  enum class Kind {
    kManager,  // the manager itself at the other end
    kBus,      // a bus in between
  };
  std::string path;
  Kind kind = Kind::kManager;
};

// Where to try, in this order. `runtime_directory` is the value of XDG_RUNTIME_DIR, or empty.
std::vector<BusAddress> manager_addresses(uid_t uid, const std::string& runtime_directory);
// The same for this process.
std::vector<BusAddress> manager_addresses();

// A new scope with the asking process in it, and the right to make groups below it.
struct ScopeRequest {
  std::string unit;  // its name, with ".scope"
  std::string description;
};

// The marshalled body of StartTransientUnit, of signature "ssa(sv)a(sa(sv))".
inline constexpr char kStartTransientUnitSignature[] = "ssa(sv)a(sa(sv))";
std::string encode_scope(const ScopeRequest& request);

// Connects, with the peer checked: it must be this user or root.
Result<UniqueFd> connect_manager(const BusAddress& address, BusDeadline deadline);

// On a connection: says who we are, and asks. The manager's yes means that the scope is on its
// way, not that the processes are in it.
Status start_scope(int connection, BusAddress::Kind kind, const ScopeRequest& request,
                   BusDeadline deadline);

}  // namespace carrel::native
