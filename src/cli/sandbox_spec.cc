#include "cli/sandbox_spec.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/files.h"
#include "manager/making.h"
#include "manager/walls.h"
#include "policy/config.h"
#include "policy/mount_request.h"
#include "policy/narrow.h"

namespace carrel::cli {

namespace {

// Relative sources of mounts are below the current folder.
Status make_sources_absolute(std::vector<policy::Mount>& mounts) {
  for (policy::Mount& mount : mounts) {
    if (mount.source.starts_with('/')) {
      continue;
    }
    CARREL_ASSIGN(const std::string folder, current_folder());
    CARREL_ASSIGN(mount.source, policy::absolute_source({"--mount", mount.source}, folder));
  }
  return {};
}

}  // namespace

Result<std::string> current_folder() {
  char* found = ::getcwd(nullptr, 0);
  if (found == nullptr) {
    return system_error("find the current folder", "name an absolute path");
  }
  std::string folder(found);
  std::free(found);
  return folder;
}

std::optional<std::string_view> config_file(const Arguments& arguments) {
  const std::optional<std::string_view> policy = arguments.value(OptionId::kPolicy);
  return policy.has_value() ? policy : arguments.value(OptionId::kConfig);
}

manager::Chosen chosen_settings(const Arguments& arguments) {
  auto choice = [&](std::string_view name) {
    return arguments.has_setting(name) ? manager::Choice::kGiven : manager::Choice::kDefault;
  };
  return {choice("workdir"), choice("user")};
}

Result<policy::Spec> sandbox_spec(const Arguments& arguments, policy::Operation operation) {
  return sandbox_spec(arguments, operation, [](policy::Spec&) { return Status(); });
}

Result<policy::Spec> sandbox_spec(const Arguments& arguments, policy::Operation operation,
                                  const SpecLayer& between) {
  policy::Spec spec = policy::default_spec(operation);
  const std::optional<std::string_view> given = config_file(arguments);
  const std::string path(given.value_or("carrel.toml"));
  auto text = read_file_at(AT_FDCWD, path, policy::kLargestConfig);
  if (text.ok()) {
    CARREL_ASSIGN(policy::Config config, policy::parse_config(text.value(), path));
    CARREL_ASSIGN(policy::Spec wanted, policy::spec_from(config, operation));
    if (!given.has_value()) {
      CARREL_TRY(policy::check_narrows(spec, wanted, path));
    }
    spec = std::move(wanted);
  } else if (given.has_value() || text.error().error_number != ENOENT) {
    return text.error();
  }
  CARREL_TRY(between(spec));
  CARREL_TRY(apply_settings(arguments, spec));
  CARREL_TRY(finish_spec(spec));
  return spec;
}

Status finish_spec(policy::Spec& spec) {
  CARREL_TRY(make_sources_absolute(spec.mounts));
  CARREL_TRY(manager::settle_walls(spec));
  return manager::check_against_host(spec);
}

}  // namespace carrel::cli
