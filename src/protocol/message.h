#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/wire.h"

// The payloads of the frames in frame.h that have more than a field or two. Each has one writer and
// one strict parser, used by both sides. Views point into the payload.
namespace carrel::protocol {

inline constexpr std::size_t kMaxText = 3U << 20;  // a command's text
inline constexpr std::size_t kMaxArguments = 4096;
inline constexpr std::size_t kMaxArgument = 128U << 10;  // the kernel's own limit for one string
inline constexpr std::size_t kMaxPath = 4095;
inline constexpr std::size_t kMaxName = 64;
inline constexpr std::size_t kMaxReason = 512;
inline constexpr std::uint64_t kMaxTimeoutMs = 30ULL * 24 * 3600 * 1000;

enum class Stream : std::uint8_t { kStdout = 1, kStderr = 2 };

enum class StartKind : std::uint8_t {
  kExec = 1,     // a separate process: `arguments`
  kShell = 2,    // `text` in the long-lived shell `session`
  kFiles = 3,    // a file worker, which gets this connection for itself: see files.h
  kService = 4,  // nobody asks for one: what the guest calls what it started for a service
  kRelays = 5,   // nobody asks for it either: who carries connections to ports, see kRelay
};

enum StartFlags : std::uint32_t {
  kStartTerminal = 1U << 0,  // exec only: a pseudo-terminal as stdin, stdout and stderr
  kStartMerged = 1U << 1,    // stdout and stderr share one pipe, so their order is kept
  kStartStdin = 1U << 2,     // stdin frames follow; otherwise stdin is empty
  kStartAllFlags = 7U,
};

// Zero-terminated strings one after the other, as execve wants them and as they travel.
struct StringList {
  std::uint32_t count = 0;
  std::string_view data;
};

void write_list(Writer& writer, const StringList& list);
// Every string ends with a zero byte, there are exactly `count` of them, and none is over the
// kernel's limit; otherwise the reader fails.
StringList read_list(Reader& reader);

struct Start {
  StartKind kind = StartKind::kExec;
  std::uint32_t flags = 0;
  std::uint64_t timeout_ms = 0;
  std::uint16_t rows = 24;
  std::uint16_t columns = 80;
  std::uint16_t caller = 0;  // the processor that whoever asks is on, plus one; 0: not known
  std::string_view workdir;  // exec: empty means the sandbox's work dir
  std::string_view session;  // shell: its name, empty for the default one
  std::string_view text;     // shell
  StringList arguments;      // exec
  StringList environment;    // exec: added to the sandbox's own; NAME=VALUE
};

void write_start(Writer& writer, const Start& start);
bool parse_start(std::string_view payload, Start& start);

// How a command ended. `kKilled` is the client's own kKill.
enum class EndKind : std::uint8_t {
  kExited = 1,
  kSignaled = 2,
  kTimedOut = 3,
  kKilled = 4,
  kNotStarted = 5,  // the program could not be executed: `error_number` says why
};

enum ExitFlags : std::uint8_t {
  kExitOutOfMemory = 1U << 0,
  kExitShellRestarted = 1U << 1,  // the shell that ran it was a fresh one after another one's end
  kExitProcessLimit = 1U << 2,
  kExitDiskLimit = 1U << 3,  // the workspace became too large
  kExitFilesFull = 1U << 4,  // it failed, and a file system in memory was full then
  kExitNoNetwork = 1U << 5,  // it failed, and something wanted a network where there is none
  kExitAllFlags = 63U,
};

struct Exit {
  EndKind kind = EndKind::kExited;
  std::uint8_t flags = 0;
  std::uint32_t code = 0;          // kExited: 0 to 255
  std::uint32_t signal = 0;        // kSignaled
  std::uint32_t error_number = 0;  // kNotStarted
  std::uint64_t duration_us = 0;
  std::uint64_t stdout_bytes = 0;
  std::uint64_t stderr_bytes = 0;
  std::string_view cwd;  // shell: where it stands now
};

void write_exit(Writer& writer, const Exit& exit);
bool parse_exit(std::string_view payload, Exit& exit);

// One row of the answer to kList.
struct CommandRow {
  std::uint64_t id = 0;
  std::uint8_t running = 0;
  StartKind kind = StartKind::kExec;
  std::uint64_t started_ms = 0;    // wall clock
  std::uint64_t stdout_start = 0;  // the oldest offset that the ring still has
  std::uint64_t stdout_end = 0;
  std::uint64_t stderr_start = 0;
  std::uint64_t stderr_end = 0;
  std::string_view title;  // the beginning of the command, cut
};

void write_command_row(Writer& writer, const CommandRow& row);
bool parse_command_row(std::string_view payload, CommandRow& row);

// The sockets of a captive network (kernel/captive_network.h): those that serve it, and two that
// are not bound, to try it with.
enum NetworkSocket : std::uint32_t {
  kTcpSocket = 0,
  kTcpSocket6 = 1,
  kDnsSocket = 2,  // datagrams
  kDnsSocket6 = 3,
  kDnsStream = 4,
  kDnsStream6 = 5,
  kProxySocket = 6,
  kDatagramProbe = 7,
  kStreamProbe = 8,
  kNetworkSockets = 9,
};
// Those that every kernel with a captive network has.
inline constexpr std::uint32_t kNeededSockets =
    1U << kTcpSocket | 1U << kDnsSocket | 1U << kDnsStream | 1U << kProxySocket;

// Which loopback address a connection to a port inside is for.
enum class LoopbackFamily : std::uint8_t { kFour = 4, kSix = 6 };

struct Connect {
  std::uint16_t port = 0;
  LoopbackFamily family = LoopbackFamily::kFour;
};

void write_connect(Writer& writer, const Connect& connect);
bool parse_connect(std::string_view payload, Connect& connect);

// Why the guest does not do what was asked.
enum class Refusal : std::uint32_t {
  kBadRequest = 1,  // the frame is malformed: a bug or an attack
  kTooMany = 2,     // as many commands as a sandbox can have are running
  kUnknown = 3,     // no such command
  kNoShell = 4,     // the shell cannot be started; errno says why
  kInternal = 5,
  kNoWorkdir = 6,  // the directory to start in is not there and cannot be made
  kPaused = 7,     // nothing can be started until it is resumed
};

}  // namespace carrel::protocol
