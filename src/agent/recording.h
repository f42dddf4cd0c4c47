#pragma once

#include <string>

#include "agent/loop.h"
#include "journal/run.h"

namespace carrel::agent {

// Records the calls of a turn in the journal.
class Recording final : public Recorder {
 public:
  Recording(journal::Turn& turn, std::string model) : turn_(turn), model_(std::move(model)) {}

  Result<Reply> model(const std::string& conversation,
                      const std::function<Result<Reply>()>& ask) override;
  Result<tools::ToolResult> tool(
      const ToolCall& call, const std::function<Result<tools::ToolResult>()>& call_it) override;

 private:
  journal::Turn& turn_;
  std::string model_;
};

}  // namespace carrel::agent
