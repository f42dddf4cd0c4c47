#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::mcp {

// The standard input and outputs of a server, from one of their two sides. The input is a socket:
// writing to a server that has ended is an error, and no signal.
struct ServerPipes {
  UniqueFd input;
  UniqueFd output;
  UniqueFd errors;
};

struct PipePair {
  ServerPipes ours;    // does not block
  ServerPipes theirs;  // blocks
};

Result<PipePair> make_pipes();

}  // namespace carrel::mcp
