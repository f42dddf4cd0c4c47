#pragma once

#include <vector>

#include "base/result.h"
#include "manager/making.h"
#include "policy/settings.h"
#include "policy/spec.h"
#include "server/json_input.h"

namespace carrel::server {

// Reads the settings of a sandbox from a JSON object, by the names and in the forms that
// carrel.toml has for them, over those of `spec`. Members that are no settings are left to
// `fields`, and the settings are made known to it. Whether the directory to start in was among them
// is told.
Status read_settings(const Json& object, policy::Operation operation, Fields& fields,
                     policy::Spec& spec, manager::Chosen& chosen);

// The settings as a JSON schema's properties.
Json settings_schema(policy::Operation operation);

}  // namespace carrel::server
