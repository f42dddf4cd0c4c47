#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/setup.h"

namespace carrel::bench {

// What the checkpoint of a turn adds to it: the milliseconds from the end of its command, the
// carrel command `change`, until the turn and its files are on disk. In a process of that user's
// own.
Result<double> time_checkpoint(const Setup& setup, Who who, const std::string& home,
                               const std::string& workspace,
                               const std::vector<std::string>& change);

}  // namespace carrel::bench
