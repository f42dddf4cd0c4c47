#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "agent/agent.h"
#include "agent/reporter.h"
#include "cli/terminal_filter.h"

namespace carrel::cli {

// What an agent does, as a person reads it while it happens: what it says on stdout, everything
// else on stderr. Nothing in it can do something to a terminal.
class AgentTranscript final : public agent::Reporter {
 public:
  void said(std::string_view text) override;
  void said_all() override;
  void asked_again(const Error& why, std::chrono::milliseconds pause) override;
  void calls(const agent::ToolCall& call) override;
  void called(const agent::ToolCall& call, const tools::ToolResult& result) override;
  void run_event(const journal::RunEvent& event) override;
  void sandbox_event(const std::string& json) override;
  void notice(const std::string& sentence) override;

 private:
  TerminalFilter filter_;
  bool in_line_ = false;
};

// The same for --json: kept, and part of the one object at the end.
class AgentRecord final : public agent::Reporter {
 public:
  void said(std::string_view /*text*/) override {}
  void said_all() override {}
  void asked_again(const Error& why, std::chrono::milliseconds pause) override;
  void calls(const agent::ToolCall& call) override;
  void called(const agent::ToolCall& call, const tools::ToolResult& result) override;
  void run_event(const journal::RunEvent& event) override;
  void sandbox_event(const std::string& json) override;
  void notice(const std::string& sentence) override;

  // Since the last call.
  nlohmann::ordered_json take_calls();
  [[nodiscard]] const nlohmann::ordered_json& notices() const { return notices_; }
  [[nodiscard]] const std::string& sandbox() const { return sandbox_; }

 private:
  nlohmann::ordered_json calls_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json notices_ = nlohmann::ordered_json::array();
  std::string sandbox_;
};

// What an agent calls, on one line: the command of exec, otherwise the tool and its arguments.
std::string call_title(const agent::ToolCall& call);
// What a model answered, on one line: the beginning of what it said, and what it wanted called.
std::string answer_title(const std::string& model, const agent::Reply& reply);

}  // namespace carrel::cli
