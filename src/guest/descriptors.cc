#include "guest/descriptors.h"

#include <string.h>
#include <sys/socket.h>

namespace carrel::guest {

bool send_with_descriptors(int client, const protocol::FrameHeader& header,
                           std::string_view payload, std::span<const int> descriptors) {
  unsigned char frame[protocol::kHeaderSize + kMostBeside];
  if (payload.size() > kMostBeside || descriptors.size() > kMostDescriptors) {
    return false;
  }
  protocol::write_header(
      header, std::span<unsigned char, protocol::kHeaderSize>(frame, protocol::kHeaderSize));
  memcpy(frame + protocol::kHeaderSize, payload.data(), payload.size());
  struct iovec data{frame, protocol::kHeaderSize + payload.size()};
  alignas(struct cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = static_cast<socklen_t>(CMSG_SPACE(descriptors.size_bytes()));
    struct cmsghdr* beside = CMSG_FIRSTHDR(&message);
    beside->cmsg_level = SOL_SOCKET;
    beside->cmsg_type = SCM_RIGHTS;
    beside->cmsg_len = static_cast<socklen_t>(CMSG_LEN(descriptors.size_bytes()));
    memcpy(CMSG_DATA(beside), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(data.iov_len);
}

}  // namespace carrel::guest
