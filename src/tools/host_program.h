#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/exec_result.h"
#include "tools/cancel.h"

namespace carrel::tools {

// A program of this host that an operator chose, with the caller's rights. Its environment has what
// a program needs to find its way (PATH, HOME, USER, LANG, TMPDIR) and no secret of this process.
struct HostProgram {
  std::vector<std::string> arguments;  // the program first, found by PATH
  std::string directory;               // empty: the current one
  std::string input;
  std::vector<std::string> variables;  // NAME=VALUE, beside those
  std::chrono::milliseconds timeout{60'000};
  // Together: what comes on stderr is in stdout, in order.
  enum class Streams { kApart, kTogether } streams = Streams::kApart;
};

// To its end. It is the leader of a session of its own, and what it leaves in that is ended with
// it.
Result<sandbox::ExecResult> run_on_host(const HostProgram& program, const Cancel& cancel);

}  // namespace carrel::tools
