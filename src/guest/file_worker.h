#pragma once

#include <string_view>

namespace carrel::guest {

// The life of a file worker: does what comes over its standard input, a connection from the host,
// until that ends. It is a process of the workload's, with its rights and limits, that has executed
// no program. Relative paths start at `workdir`.
[[noreturn]] void serve_files(std::string_view workdir);

}  // namespace carrel::guest
