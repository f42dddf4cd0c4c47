#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/boot.h"

// What programs that build rooms have in common.
namespace carrel::sandbox {

// Has `take` take each step of a part of a plan, as long as it can.
template <typename Take>
Status follow_plan(std::string_view part, Take take) {
  protocol::PlanReader steps(part);
  for (protocol::MountStep step; steps.next(step);) {
    CARREL_TRY(take(step));
  }
  return steps.ok() ? Status() : Error{Code::kInvalid, 0, "the mount plan is malformed", {}};
}

// A file in memory with this content, to be read from its beginning.
Result<UniqueFd> memory_file(std::string_view content);

// What such a file holds, in one line of printable characters; empty: nothing.
std::string read_line(int file);

// Who stands for a sandbox that another program starts.
struct FirstProcess {
  pid_t pid = 0;
  UniqueFd process;  // not valid: nobody does
};
// The one whose id that program tells, in decimal digits, over a pipe and in time.
FirstProcess await_first_process(int pipe, int timeout_ms);

// What a program says when it is asked for its version. It is asked again when it was replaced.
Result<std::string> ask_version(const std::string& program);
// The same of its flags, with what `flags` makes it say.
Result<std::string> ask_flags(const std::string& program);

}  // namespace carrel::sandbox
