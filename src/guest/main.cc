#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

#include "guest/command.h"
#include "guest/lockdown.h"
#include "guest/network.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "guest/server.h"
#include "guest/state.h"
#include "protocol/frame.h"

// The first process of every sandbox. It is executed from a sealed memory file with one descriptor,
// the stream of its maker, and builds the room around itself. Its only argument, if there is one,
// is kMakeNetwork: then it is still in its maker's network.
namespace carrel::guest {
namespace {

constexpr int kControl = 3;
constexpr std::string_view kMakeNetwork = "make-network";

struct Received {
  char* payload = nullptr;
  std::size_t size = 0;
  int descriptors[protocol::kMaxBootDescriptors];
  std::size_t count = 0;
};

bool read_exactly(void* out, std::size_t size) {
  char* at = static_cast<char*>(out);
  while (size > 0) {
    ssize_t n = read(kControl, at, size);
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

// The boot frame; its header carries the descriptors.
bool receive_boot(Received& boot) {
  unsigned char head[protocol::kHeaderSize];
  struct iovec data {head, sizeof head};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof boot.descriptors)];
  struct msghdr message {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(kControl, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) !=
      static_cast<ssize_t>(sizeof head)) {
    return false;
  }
  if (struct cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    boot.count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(boot.descriptors, CMSG_DATA(header), boot.count * sizeof(int));
  }
  protocol::FrameHeader header;
  if (!protocol::parse_header(std::span<const unsigned char, protocol::kHeaderSize>(head),
                              protocol::kMaxPayload, header) ||
      header.type != protocol::FrameType::kBoot) {
    return false;
  }
  boot.size = header.size;
  boot.payload = static_cast<char*>(malloc(boot.size + 1));
  return boot.payload != nullptr && read_exactly(boot.payload, boot.size);
}

[[noreturn]] void give_up(const Failure& failure) {
  Text<600> text;
  text.add(failure.step).add(" ").add(failure.object);
  unsigned char buffer[protocol::kHeaderSize + 700];
  protocol::Writer writer(std::span<unsigned char>(buffer).subspan(protocol::kHeaderSize));
  writer.u32(static_cast<std::uint32_t>(failure.error_number));
  writer.bytes(text.view());
  protocol::FrameHeader header{static_cast<std::uint32_t>(writer.size()), 0,
                               protocol::FrameType::kBootFailed};
  protocol::write_header(header, std::span<unsigned char, protocol::kHeaderSize>(
                                     buffer, protocol::kHeaderSize));
  write_whole(kControl,
              {reinterpret_cast<const char*>(buffer), protocol::kHeaderSize + writer.size()});
  _exit(1);
}

bool listen_and_watch(Guest& guest, const Received& received, Failure& failure) {
  std::size_t used = 0;
  if ((guest.boot.flags & protocol::kBootListener) != 0) {
    guest.listener = received.descriptors[used++];
    // The guest itself listens, so that a client's SO_PEERCRED names the guest.
    if (listen(guest.listener, 64) != 0) {
      return failure.at("listen on", "the sandbox's socket", -errno);
    }
    fcntl(guest.listener, F_SETFL, O_NONBLOCK);
  }
  guest.join_count = guest.boot.join_descriptors;
  for (std::uint32_t i = 0; i < guest.join_count; ++i) {
    guest.join[i] = received.descriptors[used++];
  }
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  guest.signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  if (guest.signals < 0 || !guest.poller.open()) {
    return failure.at("open", "the event loop", -errno);
  }
  return true;
}

int run(std::string_view order) {
  static Guest guest;
  static Network network;
  Received received;
  fcntl(kControl, F_SETFD, FD_CLOEXEC);
  Failure failure;
  if (order == kMakeNetwork && !network.begin(failure)) {
    give_up(failure);
  }
  if (!receive_boot(received)) {
    return 1;  // the maker is gone
  }
  if (!protocol::parse_boot({received.payload, received.size}, guest.boot) ||
      received.count != guest.boot.join_descriptors +
                            ((guest.boot.flags & protocol::kBootListener) != 0 ? 1U : 0U)) {
    failure.at("read", "the boot message", -EBADMSG);
    give_up(failure);
  }
  bool built = listen_and_watch(guest, received, failure) &&
               build_root(guest.boot, guest.root, failure) && network.join(failure) &&
               set_up_identity(guest.boot, failure) &&
               prepare_landlock(guest.boot, guest.root, guest.ruleset, failure) &&
               lock_in(guest.boot, guest.root, failure);
  if (!built) {
    give_up(failure);
  }
  if (guest.boot.lease_ms != 0) {
    guest.lease_deadline_us = now_us() + guest.boot.lease_ms * 1000;
  }
  if (!guest.one_shot()) {
    // It joins the workload's group while the maker stores what it made: that can take a while.
    int result = start_spawner(guest);
    if (result < 0) {
      failure.at("start", "the spawner", result);
      give_up(failure);
    }
    unsigned char ready[protocol::kHeaderSize];
    protocol::write_header({0, 0, protocol::FrameType::kReady}, ready);
    write_whole(kControl, {reinterpret_cast<const char*>(ready), sizeof ready});
  }
  serve(guest, kControl);
}

}  // namespace
}  // namespace carrel::guest

int main(int count, char** words) { return carrel::guest::run(count > 1 ? words[1] : ""); }
