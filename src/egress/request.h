#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "egress/loop.h"
#include "egress/task.h"

namespace carrel::egress {

// What the egress process is asked by the user's own programs: a JSON object in a line. With it may
// come the sockets of a sandbox's network, after a descriptor of its guest's process.
struct Request {
  std::string operation;
  std::string id;
  std::uint32_t present = 0;  // which sockets
  std::vector<UniqueFd> descriptors;
};

// Whether there was one.
Task<bool> receive_request(Watched& client, Request& request, Deadline deadline);

}  // namespace carrel::egress
