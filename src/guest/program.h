#pragma once

#include <cstdint>
#include <string_view>

#include "protocol/boot.h"
#include "protocol/message.h"

// Starting programs. A one-shot sandbox's guest forks its only command itself. In a long-lived one
// a spawner does: a process that is already part of the workload, so that a command costs a fork
// and an exec. Each command has a minder above it, a subreaper: whatever the command leaves behind
// stays below its minder and can be found and ended.
namespace carrel::guest {

// The descriptors that a program gets. Owned by the caller.
struct ProgramIo {
  int input = -1;
  int output = -1;
  int error = -1;
  int wake = -1;              // shell: becomes kShellWake
  int text = -1;              // shell: becomes kShellText
  int control = -1;           // shell: becomes kShellControl
  int directory = -1;         // shell: becomes kShellDirectory
  int lasting[2] = {-1, -1};  // shell: become kShellOutput and kShellError
};

inline constexpr int kShellOutput = 194;
inline constexpr int kShellError = 195;
inline constexpr int kShellWake = 196;
inline constexpr int kShellText = 197;
inline constexpr int kShellControl = 198;
inline constexpr int kShellDirectory = 199;

// What a minder tells through its report pipe.
enum class ReportKind : std::uint32_t {
  kStarted = 1,
  kNotStarted = 2,
  kEnded = 3,
  kNoWorkdir = 4,  // as kNotStarted, for the directory that it should start in
};
struct Report {
  ReportKind kind = ReportKind::kStarted;
  std::uint32_t value = 0;  // the program's pid, an errno, or a wait status
  std::uint32_t minder = 0;
};

// Executes the program in this process. On failure the errno is written to `report` as
// kNotStarted; `report` is close-on-exec.
[[noreturn]] void run_program(const protocol::Boot& boot, const protocol::Start& start,
                              const ProgramIo& io, int report);

// The spawner's life: takes requests from `socket` until it closes. Call after become_workload.
[[noreturn]] void run_spawner(const protocol::Boot& boot, int socket);

// Asks the spawner behind `socket` for a program; `payload` is a Start message. Returns 0 or a
// negative errno (-EPIPE: the spawner is gone).
int ask_spawner(int socket, std::string_view payload, const ProgramIo& io, int report);

}  // namespace carrel::guest
