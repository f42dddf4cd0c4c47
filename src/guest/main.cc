#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

#include "guest/command.h"
#include "guest/helper.h"
#include "guest/lockdown.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "guest/server.h"
#include "guest/state.h"
#include "protocol/frame.h"

// The first process of every sandbox. It is executed from a sealed memory file with one descriptor,
// the stream of its maker, and builds the room around itself.
namespace carrel::guest {
namespace {

constexpr int kControl = 3;

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

// A frame of this type; its header carries the descriptors.
bool receive(protocol::FrameType type, Received& frame) {
  unsigned char head[protocol::kHeaderSize];
  struct iovec data {head, sizeof head};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof frame.descriptors)];
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
    frame.count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(frame.descriptors, CMSG_DATA(header), frame.count * sizeof(int));
  }
  protocol::FrameHeader header;
  if (!protocol::parse_header(std::span<const unsigned char, protocol::kHeaderSize>(head),
                              protocol::kMaxPayload, header) ||
      header.type != type) {
    return false;
  }
  frame.size = header.size;
  frame.payload = static_cast<char*>(malloc(frame.size + 1));
  return frame.payload != nullptr && read_exactly(frame.payload, frame.size);
}

[[noreturn]] void give_up(const Failure& failure) {
  Text<600> text;
  text.add(failure.step).add(" ").add(failure.object);
  if (failure.error_number == ENOSYS && !missing_call().empty()) {
    text.add(" without ").add(missing_call());
  }
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
  // The maker may still be writing. It would get an error for that instead of this answer, so the
  // guest waits until it has read it and closes the stream, or ends the guest.
  char rest[512];
  ssize_t n;
  do {
    n = read(kControl, rest, sizeof rest);
  } while (n > 0 || (n < 0 && errno == EINTR));
  _exit(1);
}

// Takes what came with the boot frame: the listener, and the files of the control groups. The guest
// joins its own groups here, before the namespace that makes the outside invisible.
bool take_descriptors(Guest& guest, const Received& received, Failure& failure) {
  const int* next = received.descriptors;
  if ((guest.boot.flags & protocol::kBootListener) != 0) {
    guest.listener = *next++;
    // The guest itself listens, so that a client's SO_PEERCRED names the guest.
    if (listen(guest.listener, 64) != 0) {
      return failure.at("listen on", "the sandbox's socket", -errno);
    }
    fcntl(guest.listener, F_SETFL, O_NONBLOCK);
  }
  for (std::uint32_t i = 0; i < guest.boot.own_join_descriptors; ++i) {
    // CRITICAL: outside of the group its limits would not hold.
    if (!write_whole(*next, "0")) {
      return failure.at("join", "the control groups", -errno);
    }
    close(*next++);
  }
  if (unshare(CLONE_NEWCGROUP) != 0) {
    return failure.at("make", "the namespace of control groups", -errno);
  }
  guest.join_count = guest.boot.join_descriptors;
  memcpy(guest.join.data(), next, guest.join_count * sizeof(int));
  return true;
}

bool watch_signals(Guest& guest, Failure& failure) {
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

int run() {
  static Guest guest;
  static Helper helper;
  Received plan_frame;
  Received boot_frame;
  protocol::Plan plan;
  Failure failure;
  // CRITICAL: anywhere but in a room of its own this program would build one around others.
  if (getpid() != 1) {
    return 1;
  }
  fcntl(kControl, F_SETFD, FD_CLOEXEC);
  if (!helper.begin(failure)) {
    give_up(failure);
  }
  if (!receive(protocol::FrameType::kPlan, plan_frame)) {
    return 1;  // the maker is gone
  }
  bool built = protocol::parse_plan({plan_frame.payload, plan_frame.size}, plan)
                   ? watch_signals(guest, failure) && build_root(plan, guest.root, failure)
                   : failure.at("read", "the mount plan", -EBADMSG);
  if (!built) {
    give_up(failure);
  }
  helper.detach_host();
  if (!receive(protocol::FrameType::kBoot, boot_frame)) {
    return 1;
  }
  if (!protocol::parse_boot({boot_frame.payload, boot_frame.size}, guest.boot) ||
      boot_frame.count != guest.boot.own_join_descriptors + guest.boot.join_descriptors +
                              ((guest.boot.flags & protocol::kBootListener) != 0 ? 1U : 0U)) {
    failure.at("read", "the boot message", -EBADMSG);
    give_up(failure);
  }
  built = take_descriptors(guest, boot_frame, failure) && helper.enter_network(failure) &&
          set_up_identity(guest.boot, failure) &&
          prepare_landlock(guest.boot, guest.root, guest.ruleset, failure) &&
          helper.end(failure) && is_top(failure) &&
          lock_in(guest.boot, guest.root, guest.clocks, failure);
  if (!built) {
    give_up(failure);
  }
  if (guest.boot.lease_ms != 0) {
    guest.lease_deadline_us = now_us() + guest.boot.lease_ms * 1000;
  }
  if (!guest.one_shot()) {
    free(plan_frame.payload);
    // It joins the workload's group while the maker stores what it made: that can take a while.
    int result = start_spawner(guest);
    if (result < 0) {
      failure.at("start", "the spawner", result);
      give_up(failure);
    }
    unsigned char ready[protocol::kHeaderSize + 4];
    protocol::Writer writer(std::span<unsigned char>(ready).subspan(protocol::kHeaderSize));
    writer.u32(static_cast<std::uint32_t>(guest.clocks));
    protocol::write_header(
        {4, 0, protocol::FrameType::kReady},
        std::span<unsigned char, protocol::kHeaderSize>(ready, protocol::kHeaderSize));
    write_whole(kControl, {reinterpret_cast<const char*>(ready), sizeof ready});
  }
  serve(guest, kControl);
}

}  // namespace
}  // namespace carrel::guest

int main() { return carrel::guest::run(); }
