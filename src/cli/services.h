#pragma once

#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "storage/home.h"

namespace carrel::cli {

// Waits for the services of a sandbox as --wait-ready says, if it is given. kTimeout, with those
// that are not ready.
Status wait_for_services(const Context& context, const storage::Home& home, const std::string& id);

}  // namespace carrel::cli
