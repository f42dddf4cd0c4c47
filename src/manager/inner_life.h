#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "manager/holding.h"
#include "manager/services.h"

// What holds a sandbox up and how its services are, as the command line and the API both tell it.
namespace carrel::manager {

nlohmann::ordered_json to_json(const std::vector<Holder>& holders);
nlohmann::ordered_json to_json(const std::vector<ServiceLife>& services);

}  // namespace carrel::manager
