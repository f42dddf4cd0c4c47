#include "guest/maker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <span>

#include "guest/runtime.h"

namespace carrel::guest {

namespace {

bool read_exactly(int socket, void* out, std::size_t size) {
  char* at = static_cast<char*>(out);
  while (size > 0) {
    ssize_t n = read(socket, at, size);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

bool receive(int socket, protocol::FrameType type, Received& frame) {
  protocol::FrameType received{};
  return receive_any(socket, received, frame) && received == type;
}

bool receive_any(int socket, protocol::FrameType& type, Received& frame) {
  unsigned char head[protocol::kHeaderSize];
  struct iovec data{head, sizeof head};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof frame.descriptors)];
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) !=
      static_cast<ssize_t>(sizeof head)) {
    return false;
  }
  if (struct cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    frame.count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(frame.descriptors, CMSG_DATA(header), frame.count * sizeof(int));
  }
  protocol::FrameHeader header;
  if (!protocol::parse_header(std::span<const unsigned char, protocol::kHeaderSize>(head),
                              protocol::kMaxPayload, header)) {
    return false;
  }
  type = header.type;
  frame.size = header.size;
  frame.payload = static_cast<char*>(malloc(frame.size + 1));
  return frame.payload != nullptr && read_exactly(socket, frame.payload, frame.size);
}

bool tell(protocol::FrameType type, std::span<const unsigned char> payload) {
  unsigned char frame[protocol::kHeaderSize + 800];
  if (payload.size() > sizeof frame - protocol::kHeaderSize) {
    return false;
  }
  protocol::write_header(
      {static_cast<std::uint32_t>(payload.size()), 0, type},
      std::span<unsigned char, protocol::kHeaderSize>(frame, protocol::kHeaderSize));
  if (!payload.empty()) {
    memcpy(frame + protocol::kHeaderSize, payload.data(), payload.size());
  }
  return write_whole(
      kControl, {reinterpret_cast<const char*>(frame), protocol::kHeaderSize + payload.size()});
}

[[noreturn]] void give_up(const Failure& failure) {
  Text<600> text;
  text.add(failure.step).add(" ").add(failure.object);
  if (failure.error_number == ENOSYS && !missing_call().empty()) {
    text.add(" without ").add(missing_call());
  }
  unsigned char payload[700];
  protocol::Writer writer(payload);
  writer.u32(static_cast<std::uint32_t>(failure.error_number));
  writer.bytes(text.view());
  tell(protocol::FrameType::kBootFailed, {payload, writer.size()});
  // The maker may still be writing. It would get an error for that instead of this answer, so the
  // guest waits until it has read it and closes the stream, or ends the guest.
  char rest[512];
  ssize_t n;
  do {
    n = read(kControl, rest, sizeof rest);
  } while (n > 0 || (n < 0 && errno == EINTR));
  _exit(1);
}

}  // namespace carrel::guest
