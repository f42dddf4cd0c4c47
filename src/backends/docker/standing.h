#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/walls.h"

// Processes of the caller's that stand on the host for a sandbox in a container whose own processes
// are the engine's: what both kinds of them have in common (anchor.h, ferry.h).
namespace carrel::docker {

// Which of them a program becomes.
inline constexpr char kAnchorRole[] = "anchor";
inline constexpr char kFerryRole[] = "ferry";

struct Standing {
  pid_t above = 0;  // a child of this process, which ends last
  pid_t pid = 0;    // as the host counts
  UniqueFd process;
  UniqueFd complaints;  // a file with what went wrong
};

// Descriptors of such a program.
inline constexpr int kStandingRequest = 3;  // lines, of which the first is the role
inline constexpr int kStandingTell = 4;     // where the number is told of the one that stands
inline constexpr int kStandingFirst = 5;    // those that it was given

// Starts one, and waits until it stands.
Result<Standing> start_standing(const sandbox::RoomRequest& request,
                                const std::vector<std::string>& lines,
                                const std::vector<int>& given);
// In it: the lines that it was given.
Result<std::vector<std::string>> read_standing_request();
// Whoever looks for the sandbox's files at this process finds none of the host's.
Status leave_host();

// All of it, as the whole life of a process; its exit status.
int run_standing();

}  // namespace carrel::docker
