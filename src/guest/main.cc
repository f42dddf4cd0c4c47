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
#include "guest/contained.h"
#include "guest/furnished.h"
#include "guest/gvisor.h"
#include "guest/helper.h"
#include "guest/lockdown.h"
#include "guest/maker.h"
#include "guest/mount_table.h"
#include "guest/nursery.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "guest/server.h"
#include "guest/state.h"
#include "protocol/frame.h"

// The first process of every sandbox. It is executed from a sealed memory file with one descriptor,
// the stream of its maker, and builds the room around itself, or finds it furnished. In a container
// of somebody else's it is the program that starts itself there.
namespace carrel::guest {
namespace {

// Takes what came with the boot frame: the listener, and the files of the control groups. The guest
// joins its own groups here.
bool take_descriptors(Guest& guest, const Received& received, Failure& failure) {
  const int* next = received.descriptors;
  if ((guest.boot.flags & protocol::kBootDoor) != 0) {
    guest.listener = *next++;
    fcntl(guest.listener, F_SETFL, O_NONBLOCK);
  } else if ((guest.boot.flags & protocol::kBootListener) != 0) {
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

// A room that is built already: see furnished.h.
bool enter_furnished(Guest& guest, Kernel kernel, Received& frame, Failure& failure) {
  if (!drop_inheritance(failure) || !watch_signals(guest, failure) ||
      !check_kernel(kernel, failure) || (kernel == Kernel::kGvisors && !give_up_devices(failure))) {
    return false;
  }
  if (!receive(kControl, protocol::FrameType::kPlan, frame)) {
    _exit(1);
  }
  protocol::Plan plan;
  return (protocol::parse_plan(frame.view(), plan) ||
          failure.at("read", "the mount plan", -EBADMSG)) &&
         check_room(plan, kernel, {frame.descriptors, frame.count}, guest.root, failure) &&
         check_mounts(plan, kernel, failure) &&
         (tell(protocol::FrameType::kRoomChecked, {}) || failure.at("answer", "its maker", -EPIPE));
}

// How the first process of a sandbox comes to its room.
enum class Room { kBuilt, kFromNursery, kFurnished, kFurnishedByGvisor };

// CRITICAL: what is outside becomes invisible here, after the guest has joined its groups.
bool hide_groups(Failure& failure) {
  return unshare(CLONE_NEWCGROUP) == 0 ||
         failure.at("make", "the namespace of control groups", -errno);
}

bool read_boot(Guest& guest, const Received& frame, Failure& failure) {
  constexpr std::uint32_t kOneMore = protocol::kBootListener | protocol::kBootDoor;
  const bool readable = protocol::parse_boot(frame.view(), guest.boot) &&
                        frame.count == guest.boot.own_join_descriptors +
                                           guest.boot.join_descriptors +
                                           ((guest.boot.flags & kOneMore) != 0 ? 1U : 0U);
  return readable || failure.at("read", "the boot message", -EBADMSG);
}

bool lock_furnished(Guest& guest, Kernel kernel, const Received& frame, Failure& failure) {
  const bool locks = (guest.boot.flags & protocol::kBootLocksIn) != 0;
  if (kernel_of(guest.boot) != kernel) {
    return failure.at("read", "the boot message", -EBADMSG);
  }
  return take_descriptors(guest, frame, failure) && check_identity(guest.boot, failure) &&
         prepare_landlock(guest.boot, guest.root, guest.ruleset, failure) && is_top(failure) &&
         check_privileges(guest.boot, failure) &&
         (!locks || lock_in(guest.boot, guest.root, guest.clocks, failure)) &&
         check_lock(guest.boot, failure);
}

int run(Room room) {
  static Guest guest;
  static Helper helper;
  Received plan_frame;
  Received boot_frame;
  Failure failure;
  // CRITICAL: anywhere but in a room of its own this program would build one around others.
  if (room == Room::kFromNursery && !in_own_user_namespace()) {
    return 1;
  }
  const Kernel kernel = room == Room::kFurnishedByGvisor ? Kernel::kGvisors : Kernel::kHosts;
  if (kernel == Kernel::kGvisors) {
    dup2(STDIN_FILENO, kControl);
  }
  fcntl(kControl, F_SETFD, FD_CLOEXEC);
  NetworkReady network = NetworkReady::kEmpty;
  bool built = false;
  switch (room) {
    case Room::kBuilt:
      built = build_room(guest, helper, plan_frame, failure);
      break;
    case Room::kFromNursery:
      built = complete_room(guest, plan_frame, network, failure);
      break;
    case Room::kFurnished:
    case Room::kFurnishedByGvisor:
      built = enter_furnished(guest, kernel, plan_frame, failure);
      break;
  }
  if (!built) {
    give_up(failure);
  }
  if (!receive(kControl, protocol::FrameType::kBoot, boot_frame)) {
    return 1;
  }
  if (!read_boot(guest, boot_frame, failure)) {
    give_up(failure);
  }
  const bool own = room == Room::kBuilt;
  built =
      room == Room::kFurnished || room == Room::kFurnishedByGvisor
          ? lock_furnished(guest, kernel, boot_frame, failure)
          : take_descriptors(guest, boot_frame, failure) && hide_groups(failure) &&
                (!own || helper.enter_network(failure)) &&
                (network == NetworkReady::kCaptive || make_captive(guest.boot.captive, failure)) &&
                set_up_identity(guest.boot, failure) &&
                prepare_landlock(guest.boot, guest.root, guest.ruleset, failure) &&
                (!own || helper.end(failure)) && is_top(failure) &&
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
    unsigned char clocks[4];
    protocol::Writer writer(clocks);
    writer.u32(static_cast<std::uint32_t>(guest.clocks));
    tell(protocol::FrameType::kReady, clocks);
  }
  serve(guest, kControl);
}

}  // namespace
}  // namespace carrel::guest

int main(int count, char** words) {
  using carrel::guest::Room;
  if (count > 1 && std::string_view(words[1]) == "contained") {
    return carrel::guest::run_contained();
  }
  // Whoever furnishes a room tells so with an argument.
  if (count > 1) {
    const bool by_gvisor = std::string_view(words[1]) == "gvisor";
    return carrel::guest::run(by_gvisor ? Room::kFurnishedByGvisor : Room::kFurnished);
  }
  return carrel::guest::run(getpid() == 1 ? Room::kBuilt : Room::kFromNursery);
}
