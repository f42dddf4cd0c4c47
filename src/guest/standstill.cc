#include "guest/standstill.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "guest/machine.h"
#include "guest/processes.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

// What a program in a machine changed by its address is in that machine's memory until now, and the
// host looks at its files.
void write_back() {
  int workspace = open("/workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (workspace >= 0) {
    syncfs(workspace);
    close(workspace);
  }
}

}  // namespace

int begin_standstill(Guest& guest, std::uint32_t client) {
  if (guest.freezer == kPaused) {
    return 0;  // everybody stands, and goes on standing
  }
  if (guest.freezer != kNone) {
    return -EBUSY;
  }
  guest.freezer = client;
  if (!stop_everybody(guest.stopped)) {
    end_standstill(guest);
    return -ETIMEDOUT;
  }
  if (in_machine) {
    write_back();
  }
  return 0;
}

void end_standstill(Guest& guest) {
  continue_everybody(guest.stopped);
  guest.freezer = kNone;
}

int begin_pause(Guest& guest, protocol::Standstill how) {
  if (guest.freezer == kPaused) {
    return 0;
  }
  if (guest.freezer != kNone) {
    return -EBUSY;
  }
  // CRITICAL: in the workload's group it would be frozen with it, and could not be woken.
  if (how == protocol::Standstill::kByGroup && guest.own_group >= 0) {
    if (!write_whole(guest.own_group, "0")) {
      return -errno;
    }
    close(guest.own_group);
    guest.own_group = -1;
    guest.with_work = false;
    guest.move_us = 0;
  }
  if (how == protocol::Standstill::kBySignals && !stop_everybody(guest.stopped)) {
    end_standstill(guest);
    return -ETIMEDOUT;
  }
  if (in_machine) {
    write_back();
  }
  guest.freezer = kPaused;
  guest.paused_us = now_us();
  return 0;
}

int end_pause(Guest& guest) {
  if (guest.freezer != kPaused) {
    return guest.freezer == kNone ? 0 : -EBUSY;
  }
  const std::uint64_t lost = now_us() - guest.paused_us;
  for (Command& command : guest.commands) {
    command.deadline_us += command.deadline_us != 0 ? lost : 0;
  }
  for (Shell& shell : guest.shells) {
    shell.patience_us += shell.patience_us != 0 ? lost : 0;
  }
  end_standstill(guest);
  return 0;
}

}  // namespace carrel::guest
