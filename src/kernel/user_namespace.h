#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::kernel {

// A user namespace that nobody is in, with these lines in its maps; as a mount's table of owners it
// needs no more. Needs CAP_SETUID and CAP_SETGID over the ids that it maps.
Result<UniqueFd> make_user_namespace(const std::string& uid_map, const std::string& gid_map);

}  // namespace carrel::kernel
