#pragma once

#include <cstdint>
#include <string_view>

#include "guest/state.h"

// The life of a command: start, output, input, end.
namespace carrel::guest {

// Takes a slot for a new command; kNone when all are in use. The oldest finished one gives way.
std::uint32_t take_command(Guest& guest);
void free_command(Guest& guest, std::uint32_t index);

// Starts a separate process. `payload` is the Start message that `start` was parsed from.
void start_exec(Guest& guest, std::uint32_t index, const protocol::Start& start,
                std::string_view payload);

// Forks the process that starts the workload's programs. 0 or a negative errno.
int start_spawner(Guest& guest);

// Has the spawner start a program; makes a spawner when there is none. 0 or a negative errno.
int spawn(Guest& guest, std::string_view payload, const struct ProgramIo& io, int report);

void on_output(Guest& guest, std::uint32_t index, std::uint32_t stream);
void on_report(Guest& guest, std::uint32_t index);
void on_input_ready(Guest& guest, std::uint32_t index);
// Takes bytes for the command's stdin. False when the client sent more than its window.
bool give_input(Guest& guest, std::uint32_t index, std::string_view data);
void close_input(Guest& guest, std::uint32_t index);

// The guest's own child ended: the only command of a one-shot sandbox, or an orphan.
void on_child_end(Guest& guest, pid_t pid, int status);

// Ends the command's processes now; its end is reported when they are gone.
void end_command(Guest& guest, std::uint32_t index, protocol::EndKind why);

// Notes how it ended. What is still in its pipes is read, then the client is told.
void note_end(Guest& guest, std::uint32_t index, int wait_status);
void note_not_started(Guest& guest, std::uint32_t index, int error_number);
void begin_draining(Guest& guest, std::uint32_t index);

// Sends what the client has room for; tells the end once everything before it was sent.
void pump(Guest& guest, std::uint32_t index);

// Makes a pipe for one output of a command; returns the end for the program, or a negative errno.
int open_output(Guest& guest, std::uint32_t index, std::uint32_t stream);
void watch_output(Guest& guest, std::uint32_t index, std::uint32_t stream, int fd);

}  // namespace carrel::guest
