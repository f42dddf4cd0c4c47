#pragma once

#include <string>

#include "base/result.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::manager {

// A long-lived sandbox, and the home that it is in. Both are borrowed.
struct BoxPlace {
  const storage::Home& home;
  const storage::BoxRecord& record;
};

// Connects to the sandbox's guest, greets it, and sees to its network.
Result<sandbox::GuestStream> connect(const storage::Home& home, const storage::BoxRecord& record);

// Runs a command in it to its end. What it was and how it ended goes into the log; a limit that it
// met is part of its result and an event. Its output goes to `io` alone.
Result<sandbox::ExecResult> run_in_box(const BoxPlace& place, sandbox::GuestStream& stream,
                                       const sandbox::CommandRequest& request,
                                       const sandbox::CommandIo& io);

// Notes in the log that a command is started.
void note_command(const storage::Home& home, const std::string& id,
                  const sandbox::CommandRequest& request);

}  // namespace carrel::manager
