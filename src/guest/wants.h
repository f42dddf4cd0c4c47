#pragma once

#include <cstdint>

#include "guest/state.h"

// What a sandbox without a network wanted of one, while a command in it failed: that may be why.
namespace carrel::guest {

// Whether something had no way to an address since it was asked last, or since commands that did
// what they should were forgotten. What other commands want at the same time counts as well. Where
// such a command came so shortly before that it is not forgotten yet, nothing is said.
bool wanted_a_network(Guest& guest);

// A command did what it should, and what it wanted meanwhile is not what the next one wants. To
// look takes longer than many a command, so it is done when nobody has asked for one for a moment.
void forget_wants_soon(Guest& guest);
// Does it if it is time and nothing runs.
void forget_wants(Guest& guest, std::uint64_t now);

}  // namespace carrel::guest
