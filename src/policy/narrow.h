#pragma once

#include <string_view>

#include "base/result.h"
#include "policy/spec.h"

namespace carrel::policy {

// Whether a project's own file only narrows what the operator's defaults give. A carrel.toml that
// was found beside a project, and not named by the person at the terminal, comes from whoever wrote
// the project: it can lower limits and describe the inside, and nothing else. The error (kDenied)
// names the key; `path` is the file's name for it.
Status check_narrows(const Spec& defaults, const Spec& wanted, std::string_view path);

// The same for a request of somebody whom the operator has given a token.
Status check_request_narrows(const Spec& defaults, const Spec& wanted);

}  // namespace carrel::policy
