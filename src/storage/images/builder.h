#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// How mmdebstrap is to run. As root it gets a user namespace with ids that own nothing; an
// ordinary user's it makes itself, of his subordinate ids.
struct BuilderRun {
  std::vector<std::string> arguments;  // without the program
  std::vector<std::string> environment;
  int output = -1;  // where the archive goes; borrowed
  // Each line that it says about its progress.
  std::function<void(const std::string& line)> listener;
};

// Where mmdebstrap is; an error that says what to install when something is missing.
Result<std::string> find_builder();

// Runs it to its end. A failure says what it complained about first.
Status run_builder(const std::string& program, const BuilderRun& run);

}  // namespace carrel::storage
