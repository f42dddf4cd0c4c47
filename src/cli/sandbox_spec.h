#pragma once

#include <string>

#include "base/result.h"
#include "cli/args.h"
#include "manager/image_spec.h"
#include "policy/settings.h"
#include "policy/spec.h"

namespace carrel::cli {

// The sandbox that was asked for: the defaults, over them a carrel.toml, over them the options;
// checked against this host. The file that --config names counts as the operator's word; one that
// just lies in the current directory can only narrow.
Result<policy::Spec> sandbox_spec(const Arguments& arguments, policy::Operation operation);

// Whether --workdir was given.
manager::Chosen chosen_settings(const Arguments& arguments);

// Where this command was started, without links.
Result<std::string> current_folder();

// What is left to do to a spec from a file: sources of mounts are found, and its limits checked
// against this host.
Status finish_spec(policy::Spec& spec);

}  // namespace carrel::cli
