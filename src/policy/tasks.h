#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/spec.h"

namespace carrel::policy {

inline constexpr std::size_t kMostTasks = 256;

// One command in a sandbox of its own, with the files and the network that it alone is given.
struct Task {
  std::string name;
  std::vector<std::string> arguments;
  std::string input;  // its standard input
  Spec spec;
};

struct TaskFile {
  std::size_t at_once = 0;  // 0: nothing was said
  std::vector<Task> tasks;  // by their names
};

// Reads a file of tasks: settings at the top hold for all of them, `at_once` says how many run at a
// time, and each [tasks.NAME] has `command` (a text for bash) or `argv`, perhaps `stdin`, and
// settings of its own. `path` is for the errors. What depends on the host is not checked.
Result<TaskFile> parse_tasks(std::string_view text, std::string_view path);

}  // namespace carrel::policy
