#pragma once

#include <memory>

#include "tools/tool.h"
#include "tools/workplace.h"

namespace carrel::tools {

// A command's end as a model reads it: its output, after a failure with a line in front that says
// how it ended; cut, with every cut marked. Commands are run with one pipe for both streams, so
// stderr is in it also after success, and in order. Where something was cut the whole output, as
// far as it was kept, is put into `kept` below .exec, and the text names it. Null: there is no such
// place.
ToolResult show_end(const sandbox::ExecResult& result, FileStore* kept);

// `exec`: a command for bash, where `commands` runs them. `files` is where the whole of a long
// output is kept, if the agent can read it there; may be null. Both are borrowed.
std::unique_ptr<Tool> make_exec(Commands& commands, FileStore* files);

// `run_code`: source text in a language.
std::unique_ptr<Tool> make_run_code(Commands& commands, FileStore* files);

// How long commands of tools may run, in seconds.
inline constexpr int kDefaultTimeout = 60;
inline constexpr int kLongestTimeout = 3600;

}  // namespace carrel::tools
