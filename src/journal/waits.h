#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::journal {

// A question to a person that outlives whoever asked it.
struct WaitRequest {
  std::string name;  // see wait_name()
  std::string question;
  std::string schema = {};                     // JSON; empty: any answer
  std::chrono::milliseconds timeout{600'000};  // how long this call waits; the wait stays
  std::chrono::milliseconds poll{5'000};
};

// "ask_question:INDEX:" and the first eight hex digits of the SHA-1 of the question. The index
// counts the questions of an execution from 0, so that a replay finds the same names and answers.
Result<std::string> wait_name(std::size_t index, std::string_view question);

// Whether a schema is one that can be held, see policy/json_schema.h.
Status check_schema(std::string_view schema);
// kInvalid with the place of the first thing that is wrong.
Status check_answer(std::string_view schema, std::string_view answer);

}  // namespace carrel::journal
