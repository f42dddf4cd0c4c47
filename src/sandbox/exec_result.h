#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carrel::sandbox {

// Something that Carrel knows to have hindered a command that failed. Whether the command failed
// for that, it does not know.
struct Cause {
  std::string kind;     // timeout, memory, processes, disk, no_network or denied
  std::string message;  // "the limit of 50 processes was reached"
  std::string option;   // what changes it: "--pids"
};

// What a command did. It is a value: a command that failed is not an error of Carrel's.
struct ExecResult {
  int exit_code = 0;  // 128 + n after signal n; 124 after a timeout
  int signal = 0;     // 0: it was not ended by a signal
  std::string standard_output;
  std::string standard_error;
  std::string cwd;  // the shell's directory afterwards; empty for a separate process
  bool timed_out = false;
  bool oom_killed = false;
  bool disk_limit = false;     // it was ended because the workspace became too large
  bool files_full = false;     // it failed, and a file system in memory was full then
  bool process_limit = false;  // a process could not be made because the limit was reached
  bool no_network = false;     // it failed, and something in the sandbox had no way to an address
  bool truncated = false;      // some of the output is not in the two strings
  bool shell_restarted = false;
  bool cancelled = false;
  std::int64_t duration_ms = 0;
  std::string reason;         // how it ended, in words; empty after exit 0
  std::vector<Cause> causes;  // one of a kind, and none after exit 0

  [[nodiscard]] bool success() const { return exit_code == 0 && !timed_out; }
};

inline constexpr int kExitTimeout = 124;
inline constexpr int kExitCarrel = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Adds it, in the place of one of its kind; a command that did what it should has none.
void add_cause(ExecResult& result, Cause cause);

// Says in the reason of a command that failed, and not for want of time or memory, that the limit
// of that many processes was reached.
void add_process_limit(ExecResult& result, std::uint32_t limit);
void add_disk_limit(ExecResult& result, std::uint64_t limit);
// That there is no network, where something in the sandbox wanted one.
void add_no_network(ExecResult& result);
// That the network's policy denied the target; `rule` would allow it, if there is such a rule.
void add_denied(ExecResult& result, const std::string& target, const std::string& rule);
// That the command was out of memory, of which it may have so much.
void add_memory_limit(ExecResult& result, std::uint64_t limit);
// The same where a file system in memory was full; `sizes` says what they hold.
void add_files_full(ExecResult& result, const std::string& sizes);

// For people and models: stdout alone after success; otherwise a line that says how it ended and
// then both streams.
std::string render(const ExecResult& result);

}  // namespace carrel::sandbox
