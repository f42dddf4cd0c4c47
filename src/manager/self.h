#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carrel::manager {

// This program again, with other words, for what changes the rights of a process or reads what a
// process with threads should not. Its output, and its exit status; at most 8 MiB of it are taken.
struct SelfRun {
  int status = 0;
  std::string output;  // of stdout
  std::string errors;
};
struct SelfOptions {
  std::string program = "/proc/self/exe";
  int keep_open = -1;  // a descriptor that it has as well, until its end; -1: none
};
Result<SelfRun> run_self(const std::vector<std::string>& words, const SelfOptions& options = {});

// One with --json: the last object that it printed, as text, or the error that it told.
Result<std::string> ask_self(const std::vector<std::string>& words,
                             const SelfOptions& options = {});

// manager::FinishRestore, by way of that.
void finish_restore_by_self(const std::string& workspace);

}  // namespace carrel::manager
