#pragma once

#include <memory>
#include <string>

#include "tools/tool.h"

namespace carrel::tools {

// Somebody who answers questions of an agent.
class Questions {
 public:
  virtual ~Questions() = default;
  // Pauses until a person has answered. kUnavailable: nobody has yet, and the question stays;
  // kConflict: it was taken back.
  virtual Result<std::string> ask(const std::string& question, const Cancel& cancel) = 0;
};

// `ask_question`. `questions` is borrowed.
std::unique_ptr<Tool> make_question_tool(Questions& questions);

}  // namespace carrel::tools
