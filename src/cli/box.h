#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "sandbox/command.h"
#include "sandbox/guest_stream.h"
#include "storage/box.h"
#include "storage/box_use.h"
#include "storage/home.h"

namespace carrel::cli {

// A long-lived sandbox that this command talks to.
struct Connection {
  storage::Home home;
  storage::BoxRecord record;
  storage::BoxUse use;
  sandbox::GuestStream stream;
};

// Finds the sandbox that the first operand names, connects to its guest and greets it.
Result<Connection> connect(const Context& context);
// The same for a sandbox of that id or name.
Result<Connection> connect_to(const std::string& named);

// Runs a command in it in the foreground and shows its end; returns the exit status. `input` is the
// descriptor whose bytes become its stdin, or -1.
int run_in_box(const Context& context, Connection& connection, sandbox::CommandRequest request,
               int input);

// The --timeout that was given, or the sandbox's own.
std::chrono::milliseconds timeout_for(const Context& context, const storage::BoxRecord& record);

}  // namespace carrel::cli
