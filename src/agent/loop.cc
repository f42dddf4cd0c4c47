#include "agent/loop.h"

#include "base/sha256.h"

namespace carrel::agent {
namespace {

using Clock = std::chrono::steady_clock;

Error reached(const std::string& what, const std::string& key) {
  return {Code::kResource, 0, "the agent has reached its limit of " + what,
          "'" + key + "' in [limits] of its profile"};
}

Error out_of_time(const Budget& budget) {
  return reached(std::to_string(budget.limits.time.count() / 1000) + " seconds", "time");
}

Status check(const Budget& budget, std::uint64_t step) {
  if (step >= budget.limits.steps) {
    return reached(std::to_string(budget.limits.steps) + " steps in one turn", "steps");
  }
  if (budget.usage.total() >= budget.limits.tokens) {
    return reached(std::to_string(budget.limits.tokens) + " tokens", "tokens");
  }
  if (Clock::now() >= budget.deadline) {
    return out_of_time(budget);
  }
  return {};
}

// A tool's answer as the model gets it.
ToolReply reply_to(const ToolCall& call, const tools::ToolResult& result) {
  ToolReply reply;
  reply.id = call.id;
  reply.failed = result.failed();
  reply.image = result.image;
  reply.image_type = result.image_type;
  for (const std::string* part : {&result.error, &result.output}) {
    if (!part->empty()) {
      reply.text += (reply.text.empty() ? "" : "\n") + *part;
    }
  }
  if (!result.system.empty()) {
    reply.text += (reply.text.empty() ? "" : "\n") + std::string("[") + result.system + "]";
  }
  return reply;
}

Result<Reply> ask(const Loop& loop, const std::vector<Message>& messages) {
  const std::vector<const tools::ToolDefinition*> definitions = loop.registry.definitions();
  Listener listener;
  listener.said = [&](std::string_view text) { loop.observer.said(text); };
  listener.again = [&](const Error& why, std::chrono::milliseconds pause) {
    loop.observer.asked_again(why, pause);
  };
  const Prompt prompt{loop.system, messages, definitions, loop.budget.deadline};
  auto reply = loop.recorder.model(sha256(messages_to_json(messages)), [&]() -> Result<Reply> {
    ++loop.budget.model_calls;
    return loop.model.ask(prompt, listener, loop.cancel);
  });
  loop.observer.said_all();
  loop.budget.answers += reply.ok() ? 1U : 0U;
  return reply;
}

// A call that was begun is not made again, whatever became of it.
Status answer_call(const Loop& loop, const ToolCall& call, Message& answers) {
  if (loop.cancel.asked()) {
    return tools::cancelled();
  }
  loop.observer.calls(call);
  auto result = loop.recorder.tool(
      call, [&] { return loop.registry.call(call.name, call.arguments, loop.cancel); });
  if (!result.ok()) {
    if (call.name != "ask_question") {
      answers.replies.push_back(
          {call.id, "[the run was stopped during this call: what it had done by then is done]",
           true});
    }
    return result.error();
  }
  loop.observer.called(call, result.value());
  answers.replies.push_back(reply_to(call, result.value()));
  return {};
}

// Makes those calls of the last answer that have no reply.
Status answer_calls(const Loop& loop, std::vector<Message>& messages) {
  if (messages.back().role == Message::Role::kAssistant) {
    messages.push_back({Message::Role::kTool});
  }
  if (messages.size() < 2 || messages.back().role != Message::Role::kTool) {
    return {};
  }
  const std::vector<ToolCall>& calls = messages[messages.size() - 2].calls;
  Message& answers = messages.back();
  while (answers.replies.size() < calls.size()) {
    CARREL_TRY(answer_call(loop, calls[answers.replies.size()], answers));
  }
  return {};
}

Result<std::string> work(const Loop& loop, std::vector<Message>& messages) {
  for (std::uint64_t step = 0;; ++step) {
    CARREL_TRY(answer_calls(loop, messages));
    CARREL_TRY(check(loop.budget, step));
    CARREL_ASSIGN(Reply reply, ask(loop, messages));
    loop.budget.usage += reply.usage;
    if (reply.calls.empty() && reply.stop == Reply::Stop::kLength) {
      return Error{Code::kResource, 0, "the model's answer is longer than it may be",
                   "'max_tokens' in [model] of its profile"};
    }
    messages.push_back({Message::Role::kAssistant, reply.text, reply.calls});
    if (reply.calls.empty()) {
      return reply.text;
    }
  }
}

}  // namespace

Result<std::string> run_turn(const Loop& loop, const std::string& prompt,
                             std::vector<Message>& messages) {
  messages.push_back({Message::Role::kUser, prompt});
  return go_on(loop, messages);
}

Result<std::string> go_on(const Loop& loop, std::vector<Message>& messages) {
  auto answer = work(loop, messages);
  if (!answer.ok() && tools::is_cancelled(answer.error()) && loop.cancel.expired()) {
    return out_of_time(loop.budget);
  }
  return answer;
}

}  // namespace carrel::agent
