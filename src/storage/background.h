#pragma once

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

// The processes of a user that are started on demand and live longer than whoever started them: the
// keeper and the egress process. Each holds a lock as long as it lives and listens on a socket,
// both in run/.
namespace carrel::storage {

enum class Readiness { kAwaited, kLater };

// Starts `carrel COMMAND` in a session of its own, with descriptor 3 to say that it listens (a "k")
// or why not. Returns when it does, or when another one was quicker; or, where nobody waits for it,
// at once.
Status start_in_background(const Home& home, const char* command,
                           Readiness readiness = Readiness::kAwaited);

// A connection to the process that listens at run/NAME, if it is the user's own.
Result<UniqueFd> connect_background(const Home& home, const char* name);
// The same; where nobody listens, it is started.
Result<UniqueFd> reach_background(const Home& home, const char* name);

// The lock that the one process of that name holds. kConflict: there is one.
Result<UniqueFd> lock_background(const Home& home, const char* name);
bool background_is_alive(const Home& home, const char* name);

}  // namespace carrel::storage
