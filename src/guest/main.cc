#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "guest/captive.h"
#include "guest/command.h"
#include "guest/contained.h"
#include "guest/furnished.h"
#include "guest/gvisor.h"
#include "guest/helper.h"
#include "guest/lockdown.h"
#include "guest/machine.h"
#include "guest/maker.h"
#include "guest/mount_table.h"
#include "guest/nursery.h"
#include "guest/root.h"
#include "guest/root_builder.h"
#include "guest/runtime.h"
#include "guest/server.h"
#include "guest/settle.h"
#include "guest/state.h"
#include "guest/waiting.h"
#include "protocol/frame.h"

// The first process of every sandbox. It is executed from a sealed memory file with one descriptor,
// the stream of its maker, and builds the room around itself, or finds it furnished. In a container
// of somebody else's, or in a machine, it is the program that starts itself there.
namespace carrel::guest {
namespace {

// What somebody outside ignores would be ignored by every command, too: it outlives an exec.
void forget_ignored_signals() {
  constexpr int kLastSignal = 64;
  constexpr long kMaskSize = 8;
  const long standard[4] = {};  // the kernel's struct
  for (int number = 1; number <= kLastSignal; ++number) {
    syscall(SYS_rt_sigaction, number, standard, nullptr, kMaskSize);
  }
  signal(SIGPIPE, SIG_IGN);  // until it starts a program
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

// The room from its foundation, around a process that its maker has just cloned. `how` tells
// whether it is locked in, too.
bool build_room(Guest& guest, Helper& helper, Received& frame, Waited& how, Failure& failure) {
  if (!helper.begin(failure) || !watch_signals(guest, failure)) {
    return false;
  }
  protocol::FrameType type{};
  if (!receive_any(kControl, type, frame)) {
    _exit(1);  // the maker is gone
  }
  bool built = false;
  if (type == protocol::FrameType::kAhead) {
    const Received ahead = frame;
    frame = {};
    how = wait_for_sandbox(guest, helper, ahead, frame, failure);
    built = how != Waited::kFailed;
    if (built) {
      free(ahead.payload);
    }
  } else {
    protocol::Plan plan;
    if (type != protocol::FrameType::kPlan || !protocol::parse_plan(frame.view(), plan)) {
      return failure.at("read", "the mount plan", -EBADMSG);
    }
    built = build_root(plan, {frame.descriptors, frame.count}, guest.root, failure);
  }
  if (built && how == Waited::kBuilt) {
    helper.detach_host();
  }
  return built;
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

bool lock_furnished(Guest& guest, Kernel kernel, const Received& frame, Failure& failure) {
  const bool locks = (guest.boot.flags & protocol::kBootLocksIn) != 0;
  if (kernel_of(guest.boot) != kernel) {
    return failure.at("read", "the boot message", -EBADMSG);
  }
  // On the host's kernel whoever makes it sees to it that it is the room's.
  if (kernel == Kernel::kGvisors && !guest.boot.captive.empty() && !is_captive()) {
    return failure.at("rely on these walls: the network is not", "the sandbox's", 0);
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
  Waited how = Waited::kBuilt;
  bool built = false;
  switch (room) {
    case Room::kBuilt:
      built = build_room(guest, helper, plan_frame, how, failure);
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
  if (how != Waited::kLocked) {
    if (!receive(kControl, protocol::FrameType::kBoot, boot_frame)) {
      return 1;
    }
    if (!read_boot(guest, boot_frame, failure)) {
      give_up(failure);
    }
    const bool furnished = room == Room::kFurnished || room == Room::kFurnishedByGvisor;
    Helper* const own = room == Room::kBuilt ? &helper : nullptr;
    built = furnished ? lock_furnished(guest, kernel, boot_frame, failure)
                      : settle_in(guest, boot_frame, {own, network, nullptr}, failure);
    if (!built) {
      give_up(failure);
    }
  }
  if (guest.boot.lease_ms != 0) {
    guest.lease_deadline_us = now_us() + guest.boot.lease_ms * 1000;
  }
  if (!guest.one_shot()) {
    if (how != Waited::kLocked) {  // then it is the boot message
      free(plan_frame.payload);
    }
    unsigned char clocks[4];
    protocol::Writer writer(clocks);
    writer.u32(static_cast<std::uint32_t>(guest.clocks));
    tell(protocol::FrameType::kReady, clocks);
    // It joins the workload's group while the maker stores what it made. Without one, the first
    // command has to start it, and is told if that fails.
    if (guest.spawner < 0) {
      start_spawner(guest);
    } else {
      watch_spawner(guest);
    }
  }
  serve(guest, kControl);
}

}  // namespace
}  // namespace carrel::guest

int main(int count, char** words) {
  using carrel::guest::Room;
  carrel::guest::forget_ignored_signals();
  if (count > 1 && std::string_view(words[1]) == carrel::guest::kContained) {
    return carrel::guest::run_contained(carrel::guest::ContainedAs::kHostsUser);
  }
  if (count > 1 && std::string_view(words[1]) == carrel::guest::kContainedByOwner) {
    return carrel::guest::run_contained(carrel::guest::ContainedAs::kOwner);
  }
  if (count > 1 && std::string_view(words[1]) == carrel::guest::kContainedAway) {
    return carrel::guest::run_contained_away();
  }
  if (count > 1 && std::string_view(words[1]) == carrel::guest::kMachineWord) {
    return carrel::guest::run_machine(count > 2 ? std::string_view(words[2]) : std::string_view());
  }
  carrel::guest::in_machine =
      count == 1 && std::string_view(words[0]) == carrel::guest::kMachineGuest;
  // Whoever furnishes a room tells so with an argument.
  if (count > 1 && std::string_view(words[1]) == carrel::guest::kContainedByGvisor) {
    carrel::guest::call_from_container();
    dup2(carrel::guest::kControl, STDIN_FILENO);
    return carrel::guest::run(Room::kFurnishedByGvisor);
  }
  if (count > 1) {
    const bool by_gvisor = std::string_view(words[1]) == "gvisor";
    return carrel::guest::run(by_gvisor ? Room::kFurnishedByGvisor : Room::kFurnished);
  }
  return carrel::guest::run(getpid() == 1 ? Room::kBuilt : Room::kFromNursery);
}
