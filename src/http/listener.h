#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::http {

// A socket that clients connect to.
struct Listener {
  enum class Kind { kUnix, kTcp };
  UniqueFd socket;
  Kind kind = Kind::kUnix;
  std::string name;        // where it is, as a client would say: a path, or "127.0.0.1:8080"
  std::uint16_t port = 0;  // of kTcp
  bool inherited = false;  // a service manager's, who keeps it
  bool encrypted = false;  // clients speak TLS
};

// A socket at that path, for its owner alone. An old socket there is taken away; anything else
// there is an error, and so is a directory that others may write to. Not while threads run.
Result<Listener> listen_on_path(const std::string& path);

// One or two addresses of this host; port 0 is any that is free.
Result<std::vector<Listener>> listen_on_host(const std::string& host, std::uint16_t port);

// The sockets that a service manager made for this process (sd_listen_fds); none without one. They
// are taken once: what is started from here does not see them.
Result<std::vector<Listener>> inherited_listeners();

// Who is at the other end of a unix socket, as the kernel says.
Result<uid_t> peer_of(int socket);

}  // namespace carrel::http
