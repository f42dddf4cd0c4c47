#pragma once

#include <string_view>

namespace carrel::guest {

// Why the sandbox could not be built: the step, what it was about, and a positive errno. The host
// turns it into a sentence.
struct Failure {
  const char* step = nullptr;
  std::string_view object;
  int error_number = 0;

  // Notes the failure and returns false, so that a step can end with `return failure.at(…)`.
  bool at(const char* failed_step, std::string_view failed_object, int negative_errno) {
    step = failed_step;
    object = failed_object;
    error_number = -negative_errno;
    return false;
  }
};

}  // namespace carrel::guest
