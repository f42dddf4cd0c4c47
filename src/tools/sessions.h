#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/box.h"
#include "tools/tool.h"

namespace carrel::tools {

// Named shells of a sandbox in which commands are started and left: each keeps its folder, its
// variables and its functions, and has one command at a time. Names stay on this side: the guest
// has a few shells with names of ours, which serve one session after the other.
class Sessions {
 public:
  explicit Sessions(Box& box) : box_(box) {}

  struct Order {
    std::string command;
    std::string folder;  // in the workspace, in the form of workspace_path(); empty: where it is
    std::string name;    // empty: one is chosen
    enum class Wait { kNo, kYes } wait = Wait::kNo;
    std::chrono::milliseconds timeout{60'000};  // of one that is waited for
  };
  struct State {
    std::string name;
    std::string command;
    std::string cwd;     // after the last command that has ended
    std::string output;  // since it was last asked for
    bool completed = false;
    sandbox::ExecResult end;  // of one that is completed
  };
  // kConflict while the session's command still runs. One that is waited for in vain goes on.
  Result<State> execute(const Order& order, const Cancel& cancel);
  Result<State> check(const std::string& name, const Cancel& cancel);
  // Ends the session with everything that was ever started in it.
  Status terminate(const std::string& name, const Cancel& cancel);
  Result<std::vector<State>> list(const Cancel& cancel);

 private:
  struct Session {
    std::string shell;  // its name in the guest
    std::string command;
    std::uint64_t id = 0;
    std::array<std::uint64_t, 2> at{};
    bool running = false;
    std::string cwd = "/workspace";
    sandbox::ExecResult end;
    std::vector<std::string> minders;  // the processes below which all of it is
  };
  Result<Session*> find(const std::string& name);
  [[nodiscard]] std::string free_shell() const;
  Result<sandbox::ExecResult> run_in(const Session& session, const std::string& text,
                                     const Cancel& cancel);
  Status note_minder(Session& session, const Cancel& cancel);
  Result<std::string> follow(Session& session, std::chrono::milliseconds patience,
                             const Cancel& cancel);
  State state_of(const std::string& name, const Session& session, std::string output) const;

  Box& box_;
  std::map<std::string, Session> sessions_;
  std::size_t named_ = 0;
};

// execute_command, check_command_output, terminate_command and list_commands. `sessions` is
// borrowed.
std::vector<std::string> session_tool_names();
std::unique_ptr<Tool> make_session_tool(const std::string& name, Sessions& sessions);

}  // namespace carrel::tools
