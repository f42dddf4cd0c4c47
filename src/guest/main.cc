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

#include "guest/captive.h"
#include "guest/command.h"
#include "guest/helper.h"
#include "guest/lockdown.h"
#include "guest/maker.h"
#include "guest/nursery.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "guest/server.h"
#include "guest/state.h"
#include "protocol/frame.h"

// The first process of every sandbox. It is executed from a sealed memory file with one descriptor,
// the stream of its maker, and builds the room around itself.
namespace carrel::guest {
namespace {

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
  std::uint32_t joined = guest.boot.own_join_descriptors;
  if ((guest.boot.flags & protocol::kBootMovesLater) != 0) {
    if (joined == 0 || guest.boot.join_descriptors == 0) {
      return failure.at("read", "the boot message", -EBADMSG);
    }
    guest.own_group = next[--joined];
    guest.with_work = true;
  }
  for (std::uint32_t i = 0; i < joined; ++i) {
    // CRITICAL: outside of the group its limits would not hold.
    if (!write_whole(*next, "0")) {
      return failure.at("join", "the control groups", -errno);
    }
    close(*next++);
  }
  next += guest.own_group >= 0 ? 1 : 0;
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

// The room from its foundation, around a process that its maker has just cloned.
bool build_room(Guest& guest, Helper& helper, Received& frame, Failure& failure) {
  protocol::Plan plan;
  if (!helper.begin(failure)) {
    return false;
  }
  if (!receive(kControl, protocol::FrameType::kPlan, frame)) {
    _exit(1);  // the maker is gone
  }
  if (!protocol::parse_plan(frame.view(), plan)) {
    return failure.at("read", "the mount plan", -EBADMSG);
  }
  if (!watch_signals(guest, failure) ||
      !build_root(plan, {frame.descriptors, frame.count}, guest.root, failure)) {
    return false;
  }
  helper.detach_host();
  return true;
}

// What is left to be done in a process that comes from a nursery.
bool complete_room(Guest& guest, Received& frame, NetworkReady& network, Failure& failure) {
  Received first;
  protocol::Spawn spawn;
  if (!receive(kControl, protocol::FrameType::kNursery, first)) {
    _exit(1);
  }
  be_nursery(first, frame, spawn, guest.root, network);
  return watch_signals(guest, failure) && build_further(spawn.own, guest.root, failure);
}

int run() {
  static Guest guest;
  static Helper helper;
  Received plan_frame;
  Received boot_frame;
  Failure failure;
  const bool nursery = getpid() != 1;
  // CRITICAL: anywhere but in a room of its own this program would build one around others.
  if (nursery && !in_own_user_namespace()) {
    return 1;
  }
  fcntl(kControl, F_SETFD, FD_CLOEXEC);
  NetworkReady network = NetworkReady::kEmpty;
  bool built = nursery ? complete_room(guest, plan_frame, network, failure)
                       : build_room(guest, helper, plan_frame, failure);
  if (!built) {
    give_up(failure);
  }
  if (!receive(kControl, protocol::FrameType::kBoot, boot_frame)) {
    return 1;
  }
  if (!protocol::parse_boot(boot_frame.view(), guest.boot) ||
      boot_frame.count != guest.boot.own_join_descriptors + guest.boot.join_descriptors +
                              ((guest.boot.flags & protocol::kBootListener) != 0 ? 1U : 0U)) {
    failure.at("read", "the boot message", -EBADMSG);
    give_up(failure);
  }
  built = take_descriptors(guest, boot_frame, failure) &&
          (nursery || helper.enter_network(failure)) &&
          (network == NetworkReady::kCaptive || make_captive(guest.boot.captive, failure)) &&
          set_up_identity(guest.boot, failure) &&
          prepare_landlock(guest.boot, guest.root, guest.ruleset, failure) &&
          (nursery || helper.end(failure)) && is_top(failure) &&
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
