#pragma once

#include <cstdint>
#include <string_view>

#include "guest/failure.h"
#include "guest/state.h"

// The life of a command: start, output, input, end.
namespace carrel::guest {

struct ProgramIo;

// Takes a slot for a new command; kNone when all are in use. The oldest finished one gives way.
std::uint32_t take_command(Guest& guest);
void free_command(Guest& guest, std::uint32_t index);

// Starting (command_start.cc).

// Starts a separate process. `payload` is the Start message that `start` was parsed from.
void start_exec(Guest& guest, std::uint32_t index, const protocol::Start& start,
                std::string_view payload);

// Starts a file worker and gives it the connection of the command's client, who is told when that
// fails.
void start_files(Guest& guest, std::uint32_t index, std::string_view payload);

// Forks the process that starts the workload's programs. A guest that was born in the workload's
// control group stays there for a moment yet. 0 or a negative errno.
int start_spawner(Guest& guest);
// The same for one that is there already.
void watch_spawner(Guest& guest);
// What makes a child of the guest's a process of the workload: its control groups, and the rest of
// become_workload().
bool enter_workload(const Guest& guest, Failure& failure);
// Has the guest moved to its own control group, where it was born in the workload's.
void leave_workload(Guest& guest);

// Has the spawner start a program; makes a spawner when there is none. 0 or a negative errno.
int spawn(Guest& guest, std::string_view payload, const ProgramIo& io, int report);

void on_spawner_end(Guest& guest);

// Streams (command_io.cc).

enum class Got {
  kData,     // there may be more
  kShort,    // of a pipe: there was no more
  kNothing,  // everything that is there now was read
  kEnd,      // nobody can write any more
  kNoRoom,   // the client has to read first
};

// Reads an output once, into its ring.
Got read_output(Guest& guest, std::uint32_t index, std::uint32_t stream);
// Gives a stream its descriptor; watch_output has its data reported from then on.
void set_output(Guest& guest, std::uint32_t index, std::uint32_t stream, int fd);
void watch_output(Guest& guest, std::uint32_t index, std::uint32_t stream);
void on_output(Guest& guest, std::uint32_t index, std::uint32_t stream);
// Nobody holds the outputs back any more: reads what was left in the pipes.
void release_outputs(Guest& guest, std::uint32_t index);

// Writes what there is of the input, if the program has its side open.
void on_input_ready(Guest& guest, std::uint32_t index);
// The program closed its side: the rest is dropped.
void on_input_unwanted(Guest& guest, std::uint32_t index);
// Takes bytes for the command's stdin. False when the client sent more than its window.
bool give_input(Guest& guest, std::uint32_t index, std::string_view data);
void close_input(Guest& guest, std::uint32_t index);

// The client hears no more of what he follows on that channel, or on any.
inline constexpr std::uint32_t kEveryChannel = ~0U;
void stop_following(Guest& guest, std::uint32_t client, std::uint32_t channel);
// Whether the client follows the command.
bool follows(const Guest& guest, std::uint32_t client, std::uint32_t index);

// Sends what its followers have room for; tells the end once everything before it was sent.
void pump(Guest& guest, std::uint32_t index);

// Sends a signal from 1 to 64 to the processes of a running command. As long as the guest does not
// know the program yet, although it may already run, the signal is kept for it.
void send_signal(Command& command, int signal);

// Ending (command.cc).

void on_report(Guest& guest, std::uint32_t index);

// The guest's own child ended: the only command of a one-shot sandbox, or an orphan.
void on_child_end(Guest& guest, pid_t pid, int status);

// A minder was killed: ends the processes that nobody minds any more.
void end_unminded(const Guest& guest, pid_t minder);

// Ends the command's processes now; its end is reported when they are gone, or a second later.
void end_command(Guest& guest, std::uint32_t index, protocol::EndKind why);
// The command's deadline has come.
void on_deadline(Guest& guest, std::uint32_t index);

// Notes how it ended. What is still in its pipes is read, then the client is told.
void note_end(Guest& guest, std::uint32_t index, int wait_status);
void note_not_started(Guest& guest, std::uint32_t index, int error_number);
// The command is over before it began: its client is told that the directory is the reason.
void refuse_for_workdir(Guest& guest, std::uint32_t index, int error_number);
void begin_draining(Guest& guest, std::uint32_t index);

// Notes for every command that runs what befell it.
void flag_running(Guest& guest, std::uint8_t flag);

}  // namespace carrel::guest
