#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/profile.h"
#include "agent/reporter.h"
#include "backends/native/given_tree.h"
#include "base/result.h"
#include "manager/image_spec.h"
#include "manager/making.h"
#include "mcp/servers.h"
#include "policy/spec.h"
#include "storage/home.h"
#include "tools/box.h"
#include "tools/host.h"
#include "tools/questions.h"
#include "tools/registry.h"
#include "tools/sessions.h"

namespace carrel::agent {

// How the sandbox of an agent is made, decided by the operator before the agent runs.
struct RoomPlan {
  policy::Spec spec;  // with the name of its workspace
  manager::Chosen chosen = {};
  // Opens and judges the spec's mounts.
  std::function<Result<std::vector<native::GivenTree>>(const policy::Spec&)> open_mounts = {};
  manager::FinishRestore finish_restore = {};
  std::string name;            // of the sandbox; one of that name that a killed run left is removed
  std::uint64_t lease_ms = 0;  // after which it ends by itself if nobody is there to end it
};

// The place where an agent works, and its tools in it. The sandbox is made when it is first needed.
class Room {
 public:
  // Everything is borrowed.
  Room(storage::Home& home, const Profile& profile, RoomPlan plan, tools::Questions& questions,
       Reporter& reporter);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // The tools that the profile allows, and no others. Nothing is added to them any more.
  Result<tools::Registry*> tools(const tools::Cancel& cancel);
  // Ends the sandbox, if there is one. The next tools() makes another.
  Status close();
  // The same, and also with one that a killed run left. For whoever has the execution to himself.
  Status clear();

 private:
  Status open_sandbox();
  Result<std::string> make_sandbox();
  Result<std::string> make_sandbox_once();
  Status fill(const tools::Cancel& cancel);
  Status connect_servers(const tools::Cancel& cancel);

  storage::Home& home_;
  const Profile& profile_;
  RoomPlan plan_;
  tools::Questions& questions_;
  Reporter& reporter_;

  // In the order in which they need each other.
  std::unique_ptr<tools::Box> box_;
  std::unique_ptr<tools::Sessions> sessions_;
  std::unique_ptr<tools::HostCommands> host_commands_;
  std::unique_ptr<tools::HostFiles> host_files_;
  std::unique_ptr<mcp::Servers> servers_;
  std::unique_ptr<tools::Registry> registry_;
};

}  // namespace carrel::agent
