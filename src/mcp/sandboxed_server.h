#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "manager/image_spec.h"
#include "mcp/server_process.h"
#include "policy/spec.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::mcp {

// Starts servers where they reach nothing that their sandbox does not.
using SandboxStarter =
    std::function<Result<std::unique_ptr<ServerProcess>>(const ServerCommand& command)>;

// A sandbox that is made for one server, and ends with it. Its timeout does not hold: a server runs
// until nobody needs it any more.
struct NewSandbox {
  policy::Spec spec;
  manager::Chosen chosen = {};
  // Opens and judges the spec's mounts; a spec that has some needs it.
  std::function<Result<std::vector<native::GivenTree>>(const policy::Spec&)> open_mounts = {};
};
// The home is borrowed, and outlives the servers.
SandboxStarter in_new_sandbox(storage::Home& home, NewSandbox sandbox);

// A long-lived sandbox: the server is a command in it, beside the others. The home is borrowed.
SandboxStarter in_sandbox(const storage::Home& home, storage::BoxRecord record);

// Runs a command to its end with the given io, in a thread of its own.
using RunCommand = std::function<Result<sandbox::ExecResult>(const sandbox::CommandIo& io)>;
Result<std::unique_ptr<ServerProcess>> start_with(RunCommand run);

}  // namespace carrel::mcp
