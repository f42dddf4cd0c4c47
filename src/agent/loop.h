#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/message.h"
#include "agent/model.h"
#include "agent/profile.h"
#include "base/result.h"
#include "tools/cancel.h"
#include "tools/registry.h"

namespace carrel::agent {

// What a run has used of its limits. One for all turns of a run.
struct Budget {
  AgentLimits limits;
  std::chrono::steady_clock::time_point deadline;
  Usage usage = {};
  std::uint64_t model_calls = 0;
  std::uint64_t answers = 0;  // of the model, recorded ones too

  explicit Budget(const AgentLimits& of)
      : limits(of), deadline(std::chrono::steady_clock::now() + of.time) {}
};

// Who hears what an agent does.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void said(std::string_view text) = 0;  // a piece of what the model says
  virtual void said_all() = 0;                   // and this was the end of it
  virtual void asked_again(const Error& why, std::chrono::milliseconds pause) = 0;
  virtual void calls(const ToolCall& call) = 0;
  virtual void called(const ToolCall& call, const tools::ToolResult& result) = 0;
};

// Who records the calls of a turn, and may know the answer of one already.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual Result<Reply> model(const std::string& conversation,
                              const std::function<Result<Reply>()>& ask) = 0;
  virtual Result<tools::ToolResult> tool(
      const ToolCall& call, const std::function<Result<tools::ToolResult>()>& call_it) = 0;
};

// What one turn works with. Everything is borrowed.
struct Loop {
  Model& model;
  tools::Registry& registry;
  Budget& budget;
  Observer& observer;
  Recorder& recorder;
  const tools::Cancel& cancel;
  std::string_view system;
};

// One turn: asks the model and calls the tools that it wants, until it wants none. `messages` is
// the conversation so far and grows by the turn; the answer is the text of the last message.
// kResource when a limit was reached, kTimeout with ECANCELED when it was cancelled. Calls that
// make no sense are answered with what is wrong, and the model goes on. Also after an error
// `messages` is what go_on() can go on from: nothing that was answered is asked for again, and no
// call that was begun is made again, but for a question that nobody has answered yet.
Result<std::string> run_turn(const Loop& loop, const std::string& prompt,
                             std::vector<Message>& messages);
Result<std::string> go_on(const Loop& loop, std::vector<Message>& messages);

}  // namespace carrel::agent
