#include "manager/image_spec.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/files.h"
#include "policy/names.h"
#include "policy/validate.h"
#include "storage/images/image_user.h"

namespace carrel::manager {

namespace {

// What the sandbox says itself, because it is true there.
constexpr std::array<std::string_view, 6> kOwnVariables = {"HOME",   "USER", "LOGNAME",
                                                           "TMPDIR", "PWD",  "HOSTNAME"};
// What of an image the sandbox shows something else in the place of.
constexpr std::array<std::string_view, 12> kOwnDirectories = {
    "/proc", "/sys",  "/dev", "/tmp", "/run", "/var",
    "/home", "/root", "/etc", "/mnt", "/srv", "/workspace"};

// Variables that make no sense are left out, as are those beyond what a command can be given.
void add_variables(const storage::ImageConfig& config, policy::Spec& spec) {
  std::size_t total = 0;
  for (const policy::EnvironmentVariable& variable : spec.environment) {
    total += variable.name.size() + variable.value.size() + 2;
  }
  std::vector<policy::EnvironmentVariable> all;
  for (const std::string& text : config.environment) {
    auto variable = policy::parse_variable({"env", text});
    total += text.size() + 1;
    if (!variable.ok() || total > policy::kMostEnvironmentBytes ||
        std::find(kOwnVariables.begin(), kOwnVariables.end(), variable.value().name) !=
            kOwnVariables.end()) {
      continue;
    }
    std::erase_if(all, [&](const auto& known) { return known.name == variable.value().name; });
    all.push_back(std::move(variable.value()));
  }
  for (policy::EnvironmentVariable& given : spec.environment) {
    std::erase_if(all, [&](const auto& known) { return known.name == given.name; });
    all.push_back(std::move(given));
  }
  spec.environment = std::move(all);
}

// Whether the image has the directory and the sandbox shows it.
bool has_directory(const std::string& root, const std::string& path) {
  const std::string top = path.substr(0, path.find('/', 1));
  struct stat info{};
  return std::find(kOwnDirectories.begin(), kOwnDirectories.end(), top) == kOwnDirectories.end() &&
         ::lstat((root + path).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The user that the image names, unless somebody has chosen one. It never becomes root.
Status set_user(const std::string& root, const std::string& user, policy::Spec& spec) {
  CARREL_ASSIGN(const UniqueFd top, open_at(AT_FDCWD, root, O_RDONLY | O_DIRECTORY));
  CARREL_ASSIGN(const auto found, storage::resolve_user(top.get(), user));
  if (found.has_value()) {
    spec.user = found->name.empty() ? spec.user : found->name;
    spec.user_id = found->uid;
    spec.group_id = found->gid == 0 ? spec.group_id : found->gid;
  }
  return {};
}

}  // namespace

Result<std::optional<storage::UsedImage>> resolve_image(const storage::Home& home,
                                                        const Chosen& chosen, policy::Spec& spec) {
  if (spec.image == "host" || spec.image.starts_with("dir:")) {
    return std::optional<storage::UsedImage>();
  }
  auto used = storage::use_image(home, spec.image);
  if (!used.ok()) {
    used.error().message = "Failed to create sandbox: " + used.error().message;
    return used.error();
  }
  const storage::ImageRecord& record = used.value().record;
  spec.image = "dir:" + used.value().path;
  spec.image_name = record.name + "@sha256:" + record.digest;
  add_variables(record.config, spec);
  if (chosen.user == Choice::kDefault && spec.user == policy::Spec{}.user) {
    CARREL_TRY(set_user(used.value().path, record.config.user, spec));
  }
  if (chosen.workdir == Choice::kDefault && spec.workdir == policy::Spec{}.workdir) {
    auto workdir = policy::normalize_path({"workdir", record.config.workdir});
    if (workdir.ok() && workdir.value() != "/" &&
        has_directory(used.value().path, workdir.value())) {
      spec.workdir = std::move(workdir.value());
    }
  }
  return std::optional<storage::UsedImage>(std::move(used.value()));
}

}  // namespace carrel::manager
