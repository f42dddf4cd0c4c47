#pragma once

#include <cstdint>

#include "guest/state.h"

// The outputs of a shell's commands. A shell has two lasting pipes, which cost a command next to
// nothing. They are a command's own only if nobody else holds them: what a job of an earlier
// command writes belongs to that command. Whenever that is not certain, and for a command with an
// input or with one output for both streams, there are named pipes in the shell's directory, which
// the shell opens anew for each command.
namespace carrel::guest {

// Makes the lasting pipes; the ends for the shell go to `writers`. 0 or a negative errno.
int open_lasting(Shell& shell, int (&writers)[2]);

// Gives the command the lasting pipes; false when they are not certain to be free.
bool borrow_lasting(Guest& guest, Shell& shell, std::uint32_t index);

// Gives the command named pipes. False with errno when it cannot.
bool make_outputs(Guest& guest, Shell& shell, std::uint32_t index);

// Makes a named pipe in the shell's directory and opens it for reading.
bool make_fifo(int directory, const char* name, int& reader);

// The command ended: reads its outputs, and keeps those that nobody holds for the next command.
void take_back_outputs(Guest& guest, Shell& shell, std::uint32_t index);

// Looks whether the lasting pipes of shells whose command has ended are free again. Nobody waits
// for this.
void settle_shells(Guest& guest);

}  // namespace carrel::guest
