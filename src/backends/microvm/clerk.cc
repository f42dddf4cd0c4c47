#include "backends/microvm/clerk.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "backends/microvm/fuse_message.h"
#include "backends/microvm/jail.h"
#include "base/files.h"

namespace carrel::microvm {

namespace {

struct Desk {
  UniqueFd socket;
  std::unique_ptr<Share> share;
};

bool receive(int socket, char* data, std::size_t size) {
  for (std::size_t have = 0; have < size;) {
    const ssize_t n = ::recv(socket, data + have, size - have, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    have += static_cast<std::size_t>(n);
  }
  return true;
}

bool send_all(int socket, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// One message and its answer. False: that was the last one.
bool serve(Desk& desk, std::string& message) {
  fuse_in_header header{};
  message.resize(sizeof header);
  if (!receive(desk.socket.get(), message.data(), message.size())) {
    return false;
  }
  std::memcpy(&header, message.data(), sizeof header);
  const std::size_t size = fuse_size(header);
  if (size == 0) {
    return false;
  }
  message.resize(size);
  FuseRequest request;
  FuseReply reply;
  return receive(desk.socket.get(), message.data() + sizeof header, size - sizeof header) &&
         parse_fuse(message, request) && desk.share->answer(request, reply) &&
         (reply.is_silent() || send_all(desk.socket.get(), reply.encode(request.unique)));
}

}  // namespace

Result<UniqueFd> own_descriptors() {
  CARREL_ASSIGN(const UniqueFd folder, open_at(AT_FDCWD, "/proc/self/fd", O_PATH | O_DIRECTORY));
  return clone_mount(folder.get());
}

void keep_trees(std::vector<ClerkTree> trees, int descriptors) {
  std::vector<Desk> desks;
  for (ClerkTree& tree : trees) {
    desks.push_back({std::move(tree.socket),
                     std::make_unique<Share>(std::move(tree.top), tree.mode, descriptors)});
    for (const std::string& path : tree.hidden) {
      desks.back().share->hide(path);
    }
  }
  std::string message;
  while (!desks.empty()) {
    std::vector<pollfd> watched;
    for (const Desk& desk : desks) {
      watched.push_back({desk.socket.get(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
      return;
    }
    for (std::size_t i = desks.size(); i-- > 0;) {
      if (watched[i].revents != 0 && !serve(desks[i], message)) {
        desks.erase(desks.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
}

}  // namespace carrel::microvm
