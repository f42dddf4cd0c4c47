#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "guest/client.h"
#include "guest/poller.h"
#include "guest/processes.h"
#include "guest/ring.h"
#include "guest/root.h"
#include "protocol/boot.h"
#include "protocol/eagerness.h"
#include "protocol/message.h"
#include "protocol/service.h"

// Everything that a running guest knows. Tables of fixed size, so that nothing that the workload
// or a client does can make it grow.
namespace carrel::guest {

inline constexpr std::uint32_t kNone = ~0U;
inline constexpr std::uint32_t kPaused = kNone - 1;  // in the place of a client
inline constexpr std::uint32_t kMaxClients = 32;
inline constexpr std::uint32_t kMaxCommands = 48;
inline constexpr std::uint32_t kMaxShells = 16;
inline constexpr std::uint32_t kMaxWatchers = 32;

// One output of a command: the pipe, the ring behind it, and how far its client has read.
struct OutputStream {
  int fd = -1;
  bool watched = false;      // in epoll, edge-triggered
  bool held = false;         // not read until the client has made room
  bool resting = false;      // read to its end, and not to be watched before its shell has looked
  std::uint64_t drain = 0;   // bytes that were in the pipe when the command ended
  std::uint64_t cursor = 0;  // the client has got everything before this
  Ring ring;
};

enum class CommandState : std::uint8_t {
  kFree,
  kQueued,  // waits for its shell
  kRunning,
  kDraining,  // ended; its output is still on the way
  kFinished,  // known to anybody who asks, until the slot is needed
};

struct Command {
  // What is looked for in the table lies together.
  CommandState state = CommandState::kFree;
  protocol::StartKind kind = protocol::StartKind::kExec;
  std::uint32_t client = kNone;
  std::uint32_t channel = 0;
  std::uint32_t shell = kNone;
  std::uint64_t id = 0;
  std::uint64_t deadline_us = 0;  // 0: none any more
  std::uint32_t flags = 0;
  std::uint64_t timeout_us = 0;
  std::uint64_t started_us = 0;
  std::uint64_t started_wall_ms = 0;
  std::uint64_t started_ticks = 0;
  pid_t minder = 0;  // long-lived: the process above it
  pid_t program = 0;
  std::uint64_t early_signals = 0;  // bit n - 1: signal n, sent before `program` was known
  int report = -1;
  int input = -1;
  bool input_opened = true;       // shell: false until the shell has opened its side
  bool input_closing = false;     // close after what is pending
  bool follow_sent = false;       // its kExit went to the client
  std::uint64_t input_taken = 0;  // stdin bytes that the program can read or never will
  std::uint32_t giver = kNone;    // the client who is told so, and on which channel
  std::uint32_t giver_channel = 0;
  char* pending = nullptr;  // stdin bytes that did not fit in the pipe
  std::size_t pending_size = 0;
  std::size_t pending_start = 0;
  bool again = false;    // shell: given to a second shell, since the first never ran it
  bool service = false;  // exec: the guest started it for a service
  bool lasting = false;  // shell: its outputs are the shell's lasting ones
  char* text = nullptr;  // shell: the command, until its shell has told its end
  std::size_t text_size = 0;
  char title[81] = {};
  std::array<OutputStream, 2> output;
  protocol::Exit end;
  char* workdir = nullptr;  // exec: where it was told to start; the sandbox's own without
  char* cwd = nullptr;      // shell: its directory afterwards; in `near_cwd` if it fits there
  char near_cwd[96] = {};
};

// Somebody who follows a command beside its client, with a place of his own in the outputs.
struct Watcher {
  std::uint32_t client = kNone;
  std::uint32_t channel = 0;
  std::uint32_t command = kNone;
  std::array<std::uint64_t, 2> cursor{};
};

enum class ShellState : std::uint8_t { kFree, kStarting, kIdle, kBusy };

struct Shell {
  ShellState state = ShellState::kFree;
  char name[protocol::kMaxName + 1] = {};
  pid_t minder = 0;
  pid_t pid = 0;
  int report = -1;
  int wake = -1;         // a byte says that there is a command
  int control = -1;      // what the shell says
  int directory = -1;    // its private directory
  int text = -1;         // the file there that it reads commands from; it shares the offset
  int text_writer = -1;  // the same file, for the guest alone
  std::size_t text_size = 0;
  int proc = -1;                    // its directory in /proc
  std::array<int, 2> fifo{-1, -1};  // outputs that nobody else holds, for the next command
  std::array<int, 2> lasting{-1,
                             -1};  // the outputs that the shell keeps open, while nobody has them
  std::uint32_t borrower = kNone;  // the command that has them, or had them last
  std::uint64_t borrower_id = 0;
  bool unsettled = false;       // it ended; whether somebody else holds them is still to be seen
  std::uint64_t childless = 0;  // the newest process of the sandbox when the shell had no child
  pid_t child = 0;              // a process that it was found to have since
  std::uint32_t command = kNone;
  bool restarted = false;  // the next command is the first of a fresh shell after another's end
  bool unfit = false;      // it ends and gets no more commands
  bool adopted = false;    // its minder was killed during its command: the guest's own child
  bool given_up = false;   // it took too long to start
  bool unran = false;      // what it was given last was certainly not begun
  std::uint64_t patience_us = 0;  // when to look at the outputs of its command; 0: already watched
  std::uint32_t last_status = 0;
  char nonce[17] = {};
  char line[256] = {};  // what came on the control descriptor and is not a whole line yet
  std::size_t line_size = 0;
};

// A program that runs as long as the sandbox: see services.h.
struct Service {
  char name[protocol::kMaxName + 1] = {};
  std::uint16_t port = 0;
  char* program = nullptr;  // a Start message
  std::size_t program_size = 0;
  char* probe = nullptr;  // another
  std::size_t probe_size = 0;
  // Zero keeps tables in .bss: it is what a service has before it was begun.
  protocol::ServiceState state{};
  bool runs = false;
  bool ended = false;        // once at least
  std::uint32_t status = 0;  // then
  std::uint32_t starts = 0;
  std::uint64_t command = 0;  // that runs it, or ran it last
  std::uint64_t earlier = 0;  // the one before that
  std::uint64_t probing = 0;  // the command that asks whether it is ready
  std::uint64_t began_us = 0;
  std::uint64_t ready_us = 0;  // how long that took
  std::uint64_t pause_us = 0;  // before its next start
  std::uint64_t next_us = 0;   // when to start it, or to look whether it is ready
};

// What the guest remembers from one look at the memory to the next.
struct MemoryWatch {
  std::uint64_t next_us = 0;  // 0: there is nothing to watch
  std::uint64_t kept = 0;     // bytes in files after the limit was last overstepped
  bool settling = false;      // the look before this one ended everybody
  bool crowded = false;       // there are processes beside the helpers, as far as is known
};

// The same for the workspace.
struct DiskWatch {
  std::uint64_t next_us = 0;  // when to look next
  std::uint64_t walk_us = 0;  // when to look at every file again, at the latest
  std::uint64_t used = 0;     // bytes, at the last walk
  std::uint64_t room = 0;     // what the file system had left then
  std::uint64_t kept = 0;     // bytes after the limit was last overstepped
  bool idle = true;           // there is nobody who could write
  std::uint64_t told = 0;     // bytes, at the last walk for somebody who asked
  std::uint64_t tell_us = 0;  // until when that is told again
};

struct Guest {
  protocol::Boot boot;
  BuiltRoot root;
  Poller poller;
  int listener = -1;
  int signals = -1;
  int ruleset = -1;
  int timer = -1;
  std::uint64_t timer_us = 0;  // what it is set to; 0: not set
  protocol::Clocks clocks = protocol::Clocks::kHosts;
  int spawner = -1;
  pid_t spawner_pid = 0;
  int relays = -1;  // the door of who carries connections to ports: see relays.h
  std::array<int, protocol::kMaxJoin> join{};
  std::uint32_t join_count = 0;
  // See kBootMovesLater: the procs file of its own group, as long as it may not be there yet.
  int own_group = -1;
  bool with_work = false;         // it is in the workload's, and nobody moves it yet
  std::uint64_t move_us = 0;      // when somebody does; 0: nobody has to
  std::uint32_t freezer = kNone;  // the client for whom everybody stands still, or kPaused
  std::uint64_t paused_us = 0;    // since when
  StoppedBefore stopped;
  std::uint64_t unrouted = 0;    // packets that had no way so far: see wants.h
  std::uint64_t forget_us = 0;   // when to count them again; 0: nobody has to
  bool unrouted_unsure = false;  // some of those that came since may be of a command that did well
  bool released = false;         // the maker has stored what it made, and may leave
  char* spare_text = nullptr;    // see shell_files.cc
  bool unsettled = false;        // a shell is
  protocol::Eagerness eagerness;
  std::uint64_t answered_us = 0;  // when a command's end was told, until the next news
  std::uint64_t next_id = 1;
  std::uint64_t lease_deadline_us = 0;
  std::uint64_t shutdown_deadline_us = 0;
  MemoryWatch watch;
  std::uint64_t kernels_kills = 0;  // in a machine: see count_kills()
  DiskWatch disk;
  std::array<Client, kMaxClients> clients;
  std::array<Command, kMaxCommands> commands;
  std::array<Shell, kMaxShells> shells;
  std::array<Watcher, kMaxWatchers> watchers;
  std::array<Service, protocol::kMaxServices> services;
  std::uint32_t service_count = 0;

  [[nodiscard]] bool one_shot() const { return (boot.flags & protocol::kBootOneShot) != 0; }
};

}  // namespace carrel::guest
