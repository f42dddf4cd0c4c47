#include "guest/settle.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/captive.h"
#include "guest/lockdown.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "guest/spawner_ahead.h"

namespace carrel::guest {

namespace {

// CRITICAL: what is outside becomes invisible here, after the guest has joined its groups.
bool hide_groups(Failure& failure) {
  return unshare(CLONE_NEWCGROUP) == 0 ||
         failure.at("make", "the namespace of control groups", -errno);
}

}  // namespace

bool read_boot(Guest& guest, const Received& frame, Failure& failure) {
  constexpr std::uint32_t kOneMore = protocol::kBootListener | protocol::kBootDoor;
  const bool readable = protocol::parse_boot(frame.view(), guest.boot) &&
                        frame.count == guest.boot.own_join_descriptors +
                                           guest.boot.join_descriptors +
                                           ((guest.boot.flags & kOneMore) != 0 ? 1U : 0U);
  return readable || failure.at("read", "the boot message", -EBADMSG);
}

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

bool settle_in(Guest& guest, const Received& frame, const Settling& how, Failure& failure) {
  Helper* const helper = how.helper;
  return take_descriptors(guest, frame, failure) && hide_groups(failure) &&
         (helper == nullptr || helper->enter_network(failure)) &&
         (how.network == NetworkReady::kCaptive || make_captive(guest.boot.captive, failure)) &&
         set_up_identity(guest.boot, failure) &&
         prepare_landlock(guest.boot, guest.root, guest.ruleset, failure) &&
         (helper == nullptr || helper->end(failure)) && is_top(failure) &&
         (how.clocks == nullptr ? lock_in(guest.boot, guest.root, guest.clocks, failure)
                                : lock_with_spawner(guest, *how.clocks, failure));
}

}  // namespace carrel::guest
