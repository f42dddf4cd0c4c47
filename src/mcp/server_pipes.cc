#include "mcp/server_pipes.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace carrel::mcp {
namespace {

Status connect_output(UniqueFd& ours, UniqueFd& theirs) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  ours.reset(ends[0]);
  theirs.reset(ends[1]);
  if (::fcntl(ours.get(), F_SETFL, O_NONBLOCK) != 0) {
    return system_error("make a pipe");
  }
  return {};
}

}  // namespace

Result<PipePair> make_pipes() {
  PipePair pair;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("make a pair of sockets");
  }
  pair.ours.input.reset(ends[0]);
  pair.theirs.input.reset(ends[1]);
  // Nothing comes back this way.
  if (::shutdown(ends[1], SHUT_WR) != 0 || ::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
    return system_error("make a pair of sockets");
  }
  CARREL_TRY(connect_output(pair.ours.output, pair.theirs.output));
  CARREL_TRY(connect_output(pair.ours.errors, pair.theirs.errors));
  return pair;
}

}  // namespace carrel::mcp
