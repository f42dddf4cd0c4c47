#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "guest/state.h"

// The long-lived shells: one bash per session. A command's text is a file that the shell reads as
// data; its outputs are pipes that no other process holds; its status comes back with a nonce on a
// descriptor that the command's children do not have; its directory is read from /proc. A command
// that breaks its shell gets the right status once, and the next one a fresh shell. See
// docs/decisions/0004.
namespace carrel::guest {

// Queues a command on the session named in `start`, or refuses it (kNoShell, kTooMany).
bool start_in_shell(Guest& guest, std::uint32_t index, const protocol::Start& start,
                    protocol::Refusal& refusal, int& error_number);

void on_shell_report(Guest& guest, std::uint32_t shell);
// A child of the guest's ended: perhaps a shell whose minder was killed.
void on_shell_orphan_end(Guest& guest, pid_t pid, int status);
void on_shell_control(Guest& guest, std::uint32_t shell);

// The shell's command was not over at once: its outputs are read while it runs.
void on_shell_patience(Guest& guest, std::uint32_t shell);

// Takes a command that still waits for its shell out of the queue; false when it is not waiting.
bool forget_queued(Guest& guest, std::uint32_t index, protocol::EndKind why);
// The deadline of a command came before its turn: it is refused, or it ends if the shell does not
// start.
void on_waiting_deadline(Guest& guest, std::uint32_t index);

}  // namespace carrel::guest
