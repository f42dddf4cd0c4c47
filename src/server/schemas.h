#pragma once

#include "server/json_input.h"

namespace carrel::server {

// The schemas that routes name, by their names.
Json schemas();

}  // namespace carrel::server
