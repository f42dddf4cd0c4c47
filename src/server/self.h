#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::server {

// This program again, with other words, for what changes the rights of a process or reads what a
// process with threads should not. Its output, and its exit status; at most 8 MiB of it are taken.
struct SelfRun {
  int status = 0;
  std::string output;  // of stdout
  std::string errors;
};
Result<SelfRun> run_self(const std::vector<std::string>& words);

// manager::FinishRestore, by way of that.
void finish_restore(const std::string& workspace);

}  // namespace carrel::server
