#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

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
// The same with something of the operator's own between the file and the options.
using SpecLayer = std::function<Status(policy::Spec& spec)>;
Result<policy::Spec> sandbox_spec(const Arguments& arguments, policy::Operation operation,
                                  const SpecLayer& between);

// The file that --config names, or --policy, which says the same of another command.
std::optional<std::string_view> config_file(const Arguments& arguments);

// Whether --workdir was given.
manager::Chosen chosen_settings(const Arguments& arguments);

// Where this command was started, without links.
Result<std::string> current_folder();

// What is left to do to a spec from a file: sources of mounts are found, and its limits checked
// against this host.
Status finish_spec(policy::Spec& spec);

}  // namespace carrel::cli
