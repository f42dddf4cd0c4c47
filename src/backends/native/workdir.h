#pragma once

#include <string>

#include "base/result.h"
#include "storage/home.h"

namespace carrel::native {

// Has the guest of a new sandbox start a command in the sandbox's work dir, which makes that where
// it is absent and can be made. When no command could start there: kInvalid with its name, and the
// sandbox, of which nobody was told, is gone without a trace.
Status ensure_workdir(storage::Home& home, const std::string& id);

}  // namespace carrel::native
