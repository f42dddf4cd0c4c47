#include "base/unix_socket.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace carrel {

sockaddr_un socket_address(int directory, std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = "/proc/self/fd/" + std::to_string(directory) + "/";
  path += name;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

ssize_t send_with(int socket, std::string_view data, std::span<const int> descriptors, int flags) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec bytes{const_cast<char*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptors.size() > kMostDescriptors) {
    errno = EINVAL;
    return -1;
  }
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    auto* header = reinterpret_cast<cmsghdr*>(control.data());
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(socket, &message, flags);
}

ssize_t receive_with(int socket, std::span<char> data, std::vector<UniqueFd>& descriptors,
                     int flags) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec bytes{data.data(), data.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    return got;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return got;
}

}  // namespace carrel
