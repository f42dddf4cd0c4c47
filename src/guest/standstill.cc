#include "guest/standstill.h"

#include <errno.h>

#include "guest/processes.h"

namespace carrel::guest {

int begin_standstill(Guest& guest, std::uint32_t client) {
  if (guest.freezer != kNone) {
    return -EBUSY;
  }
  guest.freezer = client;
  if (!stop_everybody(guest.stopped)) {
    end_standstill(guest);
    return -ETIMEDOUT;
  }
  return 0;
}

void end_standstill(Guest& guest) {
  continue_everybody(guest.stopped);
  guest.freezer = kNone;
}

}  // namespace carrel::guest
