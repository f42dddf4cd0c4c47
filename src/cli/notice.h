#pragma once

#include <string>

#include "backends/native/enforcement.h"
#include "cli/context.h"

namespace carrel::cli {

// On a terminal, and without --json: a line for each limit that only a substitute holds, with what
// would change that, for each mount with something special, and one if the sandbox ends with the
// login.
void say_what_is_weaker(const Context& context, const native::Enforcement& enforcement);

// The same from the report that is stored with a sandbox.
native::Enforcement enforcement_from_json(const std::string& text);

}  // namespace carrel::cli
