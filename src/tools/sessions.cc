#include "tools/sessions.h"

#include <algorithm>

#include "base/utf8.h"

namespace carrel::tools {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostSessions = 12;  // a guest has 16 shells
constexpr std::size_t kLongestSessionName = 64;
constexpr std::chrono::milliseconds kOwnTimeout = 10s;

// Ends everything below the processes that are its arguments. Children that are made meanwhile are
// found by the next round.
constexpr char kEndBelow[] = R"(
declare -A below
for round in 1 2 3 4 5 6 7 8; do
  below=()
  for minder in "$@"; do below[$minder]=1; done
  found=
  for more in 1 2 3 4 5 6 7 8 9 10 11 12; do
    grown=
    for stat in /proc/[0-9]*/stat; do
      { IFS= read -r line < "$stat"; } 2>/dev/null || continue
      pid=${line%% *}
      rest=${line##*) }
      parent=${rest#* }
      parent=${parent%% *}
      if [[ -n ${below[$parent]} && -z ${below[$pid]} ]]; then
        below[$pid]=1
        grown=1
      fi
    done
    [[ -n $grown ]] || break
  done
  for minder in "$@"; do unset "below[$minder]"; done
  for pid in "${!below[@]}"; do
    kill -KILL "$pid" 2>/dev/null && found=1
  done
  [[ -n $found ]] || break
done
true)";

std::string quoted(const std::string& text) {
  std::string shell = "'";
  for (const char c : text) {
    shell += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return shell + "'";
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Error no_session(const std::string& name) {
  return {Code::kNotFound, 0,
          "there is no session '" + replace_invalid_utf8(name.substr(0, kLongestSessionName)) + "'",
          "list_commands lists them"};
}

}  // namespace

Result<Sessions::Session*> Sessions::find(const std::string& name) {
  const auto found = sessions_.find(name);
  if (found == sessions_.end()) {
    return no_session(name);
  }
  return &found->second;
}

std::string Sessions::free_shell() const {
  for (std::size_t number = 1;; ++number) {
    std::string shell = "session-" + std::to_string(number);
    const bool taken = std::any_of(sessions_.begin(), sessions_.end(),
                                   [&](const auto& entry) { return entry.second.shell == shell; });
    if (!taken) {
      return shell;
    }
  }
}

Result<sandbox::ExecResult> Sessions::run_in(const Session& session, const std::string& text,
                                             const Cancel& cancel) {
  sandbox::CommandRequest request;
  request.shell_text = text;
  request.session = session.shell;
  request.timeout = kOwnTimeout;
  return box_.run_unlogged(request, cancel);
}

Status Sessions::note_minder(Session& session, const Cancel& cancel) {
  CARREL_ASSIGN(sandbox::ExecResult result, run_in(session, "printf %s \"$PPID\"", cancel));
  const std::string minder = result.standard_output;
  if (is_number(minder) &&
      std::find(session.minders.begin(), session.minders.end(), minder) == session.minders.end()) {
    session.minders.push_back(minder);
  }
  return {};
}

Sessions::State Sessions::state_of(const std::string& name, const Session& session,
                                   std::string output) const {
  State state;
  state.name = name;
  state.command = session.command;
  state.cwd = session.cwd;
  state.output = std::move(output);
  state.completed = !session.running;
  state.end = session.end;
  return state;
}

// What the session's command has written since, and whether it has ended.
Result<std::string> Sessions::follow(Session& session, std::chrono::milliseconds patience,
                                     const Cancel& cancel) {
  CARREL_ASSIGN(Box::Progress progress, box_.look(session.id, session.at, patience, cancel));
  session.at = progress.next;
  if (!progress.running) {
    session.running = false;
    session.end = std::move(progress.end);
    session.cwd = session.end.cwd.empty() ? session.cwd : session.end.cwd;
  }
  return std::move(progress.output);
}

Result<Sessions::State> Sessions::execute(const Order& order, const Cancel& cancel) {
  std::string name = order.name;
  while (name.empty() || (order.name.empty() && sessions_.contains(name))) {
    name = "session_" + std::to_string(++named_);
  }
  if (name.size() > kLongestSessionName || name.find('\0') != std::string::npos) {
    return Error{Code::kInvalid, 0, "the name of a session is longer than 64 bytes", {}};
  }
  if (!sessions_.contains(name) && sessions_.size() >= kMostSessions) {
    return Error{Code::kResource, 0,
                 "there are " + std::to_string(kMostSessions) + " sessions already",
                 "use one of them, or terminate one"};
  }
  if (!sessions_.contains(name)) {
    Session fresh;
    fresh.shell = free_shell();
    sessions_.emplace(name, std::move(fresh));
  }
  Session& session = sessions_.at(name);
  if (session.running) {
    CARREL_TRY(follow(session, 0ms, cancel));  // what it wrote was not asked for in time
    if (session.running) {
      return Error{Code::kConflict, 0, "a command is still running in the session '" + name + "'",
                   "check_command_output looks at it, terminate_command ends it"};
    }
  }
  CARREL_TRY(note_minder(session, cancel));
  if (!order.folder.empty()) {
    const std::string path = "/workspace" + (order.folder == "." ? "" : "/" + order.folder);
    CARREL_ASSIGN(const sandbox::ExecResult moved,
                  run_in(session, "cd -- " + quoted(path), cancel));
    if (!moved.success()) {
      return Error{Code::kNotFound, 0, "there is no folder '" + order.folder + "'", {}};
    }
    session.cwd = path;
  }
  sandbox::CommandRequest request;
  request.shell_text = order.command;
  request.session = session.shell;
  request.merged = true;
  request.timeout = std::chrono::milliseconds(protocol::kMaxTimeoutMs);
  CARREL_ASSIGN(session.id, box_.start(request));
  session.command = order.command;
  session.at = {0, 0};
  session.running = true;
  session.end = {};
  std::string output;
  if (order.wait == Order::Wait::kYes) {
    CARREL_ASSIGN(output, follow(session, order.timeout, cancel));
  }
  return state_of(name, session, std::move(output));
}

Result<Sessions::State> Sessions::check(const std::string& name, const Cancel& cancel) {
  CARREL_ASSIGN(Session * session, find(name));
  std::string output;
  if (session->running) {
    CARREL_ASSIGN(output, follow(*session, 0ms, cancel));
  }
  return state_of(name, *session, std::move(output));
}

Status Sessions::terminate(const std::string& name, const Cancel& cancel) {
  CARREL_ASSIGN(Session * session, find(name));
  if (session->running) {
    Status killed = box_.kill(session->id);
    if (!killed.ok() && killed.error().code != Code::kNotFound) {
      return killed;
    }
    session->running = false;
  }
  sandbox::CommandRequest request;
  request.arguments = {"bash", "--noprofile", "--norc", "-c", kEndBelow, "bash"};
  for (const std::string& minder : session->minders) {
    request.arguments.push_back(minder);
  }
  request.timeout = kOwnTimeout;
  CARREL_TRY(box_.run_unlogged(request, cancel));
  sessions_.erase(name);
  return {};
}

Result<std::vector<Sessions::State>> Sessions::list(const Cancel& cancel) {
  std::vector<State> states;
  for (auto& [name, session] : sessions_) {
    if (session.running) {
      // Its output stays where it is for check().
      CARREL_ASSIGN(Box::Progress progress,
                    box_.look(session.id, {manager::kAtItsEnd, manager::kAtItsEnd}, 0ms, cancel));
      State state = state_of(name, session, {});
      state.completed = !progress.running;
      state.end = std::move(progress.end);
      states.push_back(std::move(state));
    } else {
      states.push_back(state_of(name, session, {}));
    }
  }
  return states;
}

}  // namespace carrel::tools
