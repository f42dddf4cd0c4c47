#pragma once

#include "base/result.h"
#include "verify/attack_table.h"
#include "verify/canaries.h"
#include "verify/judge.h"
#include "verify/rooms.h"

// Attacks that need a second look: at the host afterwards, or from another sandbox.
namespace carrel::verify {

// Leaves processes behind; the host must see them while the sandbox lives, and none afterwards.
Result<Judgement> leave_daemons(const Attack& attack, Rooms& rooms, const Canaries& canaries);

// Leaves marks; a sandbox that is made afterwards looks for them.
Result<Judgement> look_as_newcomer(const Attack& attack, Rooms& rooms);

// The same while the first sandbox is still there.
Result<Judgement> look_as_neighbour(const Attack& attack, Rooms& rooms);

}  // namespace carrel::verify
