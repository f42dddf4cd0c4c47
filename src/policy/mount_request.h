#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "policy/given.h"
#include "policy/spec.h"

namespace carrel::policy {

// How mounts are written. Sources are data: a name may have any bytes but NUL, and is never taken
// apart or expanded.

// "SRC:DST", "SRC:DST:ro" or "SRC:DST:rw". DST has no ':', so it is what follows the last one
// before the mode, and SRC, colons and all, is the rest: `/srv/a:b,ro:/data` shows the folder
// `/srv/a:b,ro`. A SRC that is not absolute stays so; see absolute_source().
Result<Mount> parse_mount(const Given& given);

// The source of a request as an absolute path: "." and other relative ones are below `cwd`, links
// and ".." stay. Empty ones and a '~' that no shell expanded are refused.
Result<std::string> absolute_source(const Given& given, std::string_view cwd);

// Where a mount may appear inside: absolute, written as short as it goes, not over what the sandbox
// itself is made of and not over /workspace/code.
Status check_mount_target(const Given& given);

// Each mount by itself, and no two that have one target or one inside the other's.
Status check_mounts(const std::vector<Mount>& mounts);

// An element of allowed_read_paths or allowed_write_paths: absolute, without "..", not empty.
Result<std::string> parse_allowed_path(const Given& given);

}  // namespace carrel::policy
