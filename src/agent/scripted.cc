#include "agent/scripted.h"

#include <utility>

#include "agent/json_value.h"
#include "base/sha256.h"
#include "policy/json_fields.h"
#include "policy/toml_json.h"

namespace carrel::agent {
namespace {

using Turns = std::vector<std::vector<Reply>>;

Result<ToolCall> call_of(const Json& row, const std::string& id) {
  policy::Fields fields(row, "a call of the script");
  ToolCall call;
  call.id = id;
  call.name = fields.needed_text("name");
  if (const Json* arguments = fields.any("arguments"); arguments != nullptr) {
    call.arguments = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  }
  CARREL_TRY(fields.finish());
  return call;
}

Result<Reply> reply_of(const Json& row, const std::string& place) {
  policy::Fields fields(row, "a reply of the script");
  Reply reply;
  reply.text = fields.text("text").value_or("");
  constexpr std::uint64_t kMostTokens = 1'000'000'000;
  reply.usage.input = fields.number("input_tokens", kMostTokens).value_or(0);
  reply.usage.output = fields.number("output_tokens", kMostTokens).value_or(0);
  const Json* calls = fields.any("calls");
  CARREL_TRY(fields.finish());
  if (calls != nullptr) {
    if (!calls->is_array()) {
      return Error{Code::kInvalid, 0, "'calls' of a reply must be a list", {}};
    }
    for (const Json& one : *calls) {
      CARREL_ASSIGN(ToolCall call,
                    call_of(one, "call_" + place + "_" + std::to_string(reply.calls.size() + 1)));
      reply.calls.push_back(std::move(call));
      reply.stop = Reply::Stop::kCalls;
    }
  }
  return reply;
}

Result<Turns> read_turns(const Json& document) {
  const Json& list = member(document, "turns");
  if (!list.is_array() || document.size() != 1) {
    return Error{
        Code::kInvalid, 0, "the script has no list of [[turns]], or something beside it", {}};
  }
  Turns turns;
  for (const Json& turn : list) {
    std::vector<Reply> replies;
    const Json& rows = member(turn, "replies");
    if (!rows.is_array() || turn.size() != 1) {
      return Error{Code::kInvalid,
                   0,
                   "turn " + std::to_string(turns.size() + 1) +
                       " of the script has no list of replies, or something beside it",
                   {}};
    }
    for (const Json& row : rows) {
      CARREL_ASSIGN(Reply reply, reply_of(row, std::to_string(turns.size() + 1) + "_" +
                                                   std::to_string(replies.size() + 1)));
      replies.push_back(std::move(reply));
    }
    turns.push_back(std::move(replies));
  }
  return turns;
}

class ScriptedModel final : public Model {
 public:
  ScriptedModel(Turns turns, std::string digest)
      : turns_(std::move(turns)), digest_(std::move(digest)) {}

  [[nodiscard]] std::string identity() const override { return "scripted " + digest_; }

 protected:
  Attempt attempt(const Prompt& prompt, const Listener& listener,
                  const tools::Cancel& /*cancel*/) override {
    std::size_t turn = 0;
    std::size_t step = 0;
    for (const Message& message : prompt.messages) {
      if (message.role == Message::Role::kUser) {
        ++turn;
        step = 0;
      } else if (message.role == Message::Role::kAssistant) {
        ++step;
      }
    }
    if (turn == 0 || turn > turns_.size() || step >= turns_[turn - 1].size()) {
      return {Error{Code::kInvalid,
                    0,
                    "the script has no reply " + std::to_string(step + 1) + " in turn " +
                        std::to_string(turn),
                    {}}};
    }
    Reply reply = turns_[turn - 1][step];
    std::string_view rest = reply.text;
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, rest.find(' ', 1));
      listener.said(piece);
      rest.remove_prefix(piece.size());
    }
    return {std::move(reply)};
  }

 private:
  Turns turns_;
  std::string digest_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_scripted_model(std::string_view text, std::string_view path) {
  const bool json = text.find_first_not_of(" \t\r\n") != std::string_view::npos &&
                    text[text.find_first_not_of(" \t\r\n")] == '{';
  auto document =
      json ? policy::parse_strict_json(text, {.what = path}) : policy::parse_toml_json(text, path);
  if (!document.ok()) {
    return document.error();
  }
  auto turns = read_turns(document.value());
  if (!turns.ok()) {
    turns.error().message = std::string(path) + ": " + turns.error().message;
    return turns.error();
  }
  return std::unique_ptr<Model>(
      std::make_unique<ScriptedModel>(std::move(turns.value()), sha256(text).substr(0, 16)));
}

}  // namespace carrel::agent
