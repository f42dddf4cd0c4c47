#include "policy/setters.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "policy/credential.h"
#include "policy/mount_request.h"
#include "policy/names.h"
#include "policy/size.h"
#include "policy/suggest.h"
#include "policy/validate.h"

namespace carrel::policy::setters {
namespace {

struct ProtectionName {
  std::string_view name;
  Protection protection;
};

constexpr std::array kProtections = {
    ProtectionName{"memory", Protection::kMemory},     ProtectionName{"cpu", Protection::kCpu},
    ProtectionName{"pids", Protection::kPids},         ProtectionName{"disk", Protection::kDisk},
    ProtectionName{"landlock", Protection::kLandlock},
};
// In the order of OnIdle.
constexpr std::array<std::string_view, 4> kIdleWords = {"none", "pause", "stop", "remove"};
constexpr std::array<std::string_view, 2> kFailureWords = {"none", "recreate"};
constexpr std::string_view kUnlimitedWord = "unlimited";
constexpr std::array<std::string_view, 5> kProtectionNames = {"memory", "cpu", "pids", "disk",
                                                              "landlock"};

// The error for a word that is none of `words`: the nearest one, or all of them.
Error unknown_word(const Given& given, std::string_view reason,
                   std::span<const std::string_view> words) {
  std::string hint = did_you_mean(given.text, words);
  if (hint.empty()) {
    hint = "one of ";
    for (const std::string_view word : words) {
      hint += word;
      hint += word == words.back() ? "" : ", ";
    }
  }
  return bad_value(given, reason, std::move(hint));
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "" : ",";
    text += word;
  }
  return text;
}

Result<bool> parse_flag(const Given& given) {
  if (given.text == "true") {
    return true;
  }
  if (given.text == "false") {
    return false;
  }
  return bad_value(given, "neither true nor false");
}

Result<std::uint64_t> parse_byte_budget(const Given& given) {
  if (given.text == kUnlimitedWord) {
    return NetworkBudgets::kUnlimited;
  }
  CARREL_ASSIGN(const std::uint64_t bytes, parse_size(given));
  if (bytes == 0) {
    return bad_value(given, "must be at least 1", "'--network none' lets nothing out or in");
  }
  return bytes;
}

std::string byte_budget_text(std::uint64_t bytes) {
  return bytes == NetworkBudgets::kUnlimited ? std::string(kUnlimitedWord) : format_size(bytes);
}

}  // namespace

Status set_memory(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint64_t bytes, parse_size(given));
  CARREL_TRY(check_memory(given, bytes));
  spec.limits.memory_bytes = bytes;
  return {};
}

Status set_cpus(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint32_t millis, parse_cpus(given));
  CARREL_TRY(check_cpus(given, millis));
  spec.limits.cpu_millis = millis;
  return {};
}

Status set_pids(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint64_t pids, parse_count(given, {kFewestPids, kMostPids}));
  spec.limits.pids = static_cast<std::uint32_t>(pids);
  return {};
}

Status set_timeout(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::chrono::milliseconds timeout, parse_duration(given));
  CARREL_TRY(check_timeout(given, timeout));
  spec.limits.timeout = timeout;
  spec.timeout_choice = TimeoutChoice::kGiven;
  return {};
}

Status set_disk(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint64_t bytes, parse_size(given));
  CARREL_TRY(check_storage(given, bytes));
  spec.limits.disk_bytes = bytes;
  return {};
}

Status set_tmp(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint64_t bytes, parse_size(given));
  CARREL_TRY(check_storage(given, bytes));
  spec.limits.tmp_bytes = bytes;
  return {};
}

Status set_env(Spec& spec, const Given& given) {
  CARREL_ASSIGN(EnvironmentVariable variable, parse_variable(given));
  for (EnvironmentVariable& known : spec.environment) {
    if (known.name == variable.name) {
      known.value = std::move(variable.value);
      return {};
    }
  }
  spec.environment.push_back(std::move(variable));
  return {};
}

Status set_workdir(Spec& spec, const Given& given) {
  CARREL_ASSIGN(spec.workdir, normalize_path(given));
  return {};
}

Status set_image(Spec& spec, const Given& given) {
  constexpr std::string_view kDirectory = "dir:";
  if (given.text == "host") {
    spec.image = "host";
    return {};
  }
  if (given.text.starts_with(kDirectory)) {
    CARREL_ASSIGN(const std::string path,
                  normalize_path({given.name, given.text.substr(kDirectory.size())}));
    spec.image = concat({kDirectory, path});
    return {};
  }
  CARREL_TRY(check_image_reference(given));
  spec.image = given.text;
  return {};
}

Status set_user(Spec& spec, const Given& given) {
  CARREL_TRY(check_user_name(given));
  if (given.text == "root") {
    return not_built(given, "nothing in a sandbox runs as root in this version");
  }
  spec.user = given.text;
  return {};
}

Status set_hostname(Spec& spec, const Given& given) {
  CARREL_TRY(check_hostname(given));
  spec.hostname = given.text;
  return {};
}

Status set_writable_root(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const bool writable, parse_flag(given));
  spec.root_mode = writable ? RootMode::kThrowawayOverlay : RootMode::kReadOnly;
  return {};
}

Status set_network(Spec& spec, const Given& given) {
  CARREL_ASSIGN(NetworkPolicy network, parse_network(given));
  network.budgets = spec.network.budgets;
  network.credentials = std::move(spec.network.credentials);
  spec.network = std::move(network);
  return {};
}

// A list of what is allowed stays as it is: it says more than "true".
Status set_network_enabled(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const bool enabled, parse_flag(given));
  if (!enabled) {
    spec.network.mode = NetworkMode::kNone;
    spec.network.rules.clear();
  } else if (spec.network.mode == NetworkMode::kNone) {
    spec.network.mode = NetworkMode::kFull;
  }
  return {};
}

Status set_credential(Spec& spec, const Given& given) {
  CARREL_ASSIGN(Credential credential, parse_credential(given));
  std::vector<Credential>& all = spec.network.credentials;
  const bool twice = std::any_of(all.begin(), all.end(), [&](const Credential& other) {
    return other.rule == credential.rule && other.header == credential.header;
  });
  if (twice) {
    return bad_value(given, "these requests have another credential in that header");
  }
  if (all.size() >= kMostCredentials) {
    return bad_value(given, concat({"more than ", std::to_string(kMostCredentials), " of them"}));
  }
  all.push_back(std::move(credential));
  return {};
}

Status set_network_out(Spec& spec, const Given& given) {
  CARREL_ASSIGN(spec.network.budgets.bytes_out, parse_byte_budget(given));
  return {};
}

Status set_network_in(Spec& spec, const Given& given) {
  CARREL_ASSIGN(spec.network.budgets.bytes_in, parse_byte_budget(given));
  return {};
}

Status set_network_connections(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint64_t count, parse_count(given, {1, kMostNetworkConnections}));
  spec.network.budgets.connections = static_cast<std::uint32_t>(count);
  return {};
}

Status set_network_lookups(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const std::uint64_t count, parse_count(given, {1, kMostNetworkLookups}));
  spec.network.budgets.lookups_per_minute = static_cast<std::uint32_t>(count);
  return {};
}

Status set_require(Spec& spec, const Given& given) {
  std::vector<Protection> required = spec.required;
  std::string_view rest = given.text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const auto found = std::find_if(kProtections.begin(), kProtections.end(),
                                    [&](const ProtectionName& row) { return row.name == word; });
    if (found == kProtections.end()) {
      return unknown_word({given.name, word}, "not a protection", kProtectionNames);
    }
    if (std::find(required.begin(), required.end(), found->protection) == required.end()) {
      required.push_back(found->protection);
    }
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  spec.required = std::move(required);
  return {};
}

Status set_cgroup_parent(Spec& spec, const Given& given) {
  CARREL_ASSIGN(spec.cgroup_parent, normalize_path(given));
  return {};
}

Status set_backend(Spec& spec, const Given& given) {
  constexpr std::array<std::string_view, 9> kWords = {
      "native", "bubblewrap", "docker", "oci", "gvisor", "microvm", "kubernetes", "hosted", "wasm"};
  if (const std::optional<Backend> found = backend_named(given.text); found.has_value()) {
    spec.backend = *found;
    spec.backend_choice = BackendChoice::kNamed;
    return {};
  }
  return std::find(kWords.begin(), kWords.end(), given.text) == kWords.end()
             ? unknown_word(given, "unknown backend", kWords)
             : not_built(
                   given,
                   "the backends in this version are 'native', 'bubblewrap', 'oci', 'docker' and "
                   "'microvm'");
}

// An engine has runtimes under names of its own: whether there is one of that name, the backend
// says.
Status set_runtime(Spec& spec, const Given& given) {
  constexpr std::size_t kLongest = 64;
  const bool is_name = !given.text.empty() && given.text.size() <= kLongest &&
                       std::all_of(given.text.begin(), given.text.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
                       });
  if (!is_name) {
    constexpr std::array<std::string_view, 3> kWords = {"runc", "crun", "runsc"};
    return unknown_word(given, "unknown runtime", kWords);
  }
  spec.runtime = given.text;
  return {};
}

Status set_isolation(Spec& spec, const Given& given) {
  constexpr std::array<std::string_view, 3> kWords = {"namespace", "gvisor", "vm"};
  const std::optional<Strength> found = strength_named(given.text);
  if (!found.has_value()) {
    return unknown_word(given, "unknown isolation", kWords);
  }
  spec.isolation = *found;
  return {};
}

Status set_use_sandbox(Spec&, const Given& given) {
  CARREL_ASSIGN(const bool use, parse_flag(given));
  if (!use) {
    return not_built(given, "this version runs every command in a sandbox");
  }
  return {};
}

Status set_allowed_read_paths(Spec& spec, const Given& given) {
  CARREL_ASSIGN(std::string path, parse_allowed_path(given));
  spec.mount_grants.by = MountGrants::By::kLists;
  spec.mount_grants.read_paths.push_back(std::move(path));
  return {};
}

Status set_allowed_write_paths(Spec& spec, const Given& given) {
  CARREL_ASSIGN(std::string path, parse_allowed_path(given));
  spec.mount_grants.by = MountGrants::By::kLists;
  spec.mount_grants.write_paths.push_back(std::move(path));
  return {};
}

Status set_mount(Spec& spec, const Given& given) {
  CARREL_ASSIGN(Mount mount, parse_mount(given));
  std::vector<Mount> mounts = spec.mounts;
  mounts.push_back(std::move(mount));
  CARREL_TRY(check_mounts(mounts));
  spec.mounts = std::move(mounts);
  return {};
}

Status set_workspace(Spec& spec, const Given& given) {
  CARREL_TRY(check_name(given));
  spec.workspace = given.text;
  return {};
}

Status set_share_workspace(Spec& spec, const Given& given) {
  CARREL_ASSIGN(const bool shared, parse_flag(given));
  spec.workspace_use = shared ? WorkspaceUse::kShared : WorkspaceUse::kAlone;
  return {};
}

Status set_on_idle(Spec& spec, const Given& given) {
  const auto found = std::find(kIdleWords.begin(), kIdleWords.end(), given.text);
  if (found == kIdleWords.end()) {
    return unknown_word(given, "unknown end of an idle sandbox", kIdleWords);
  }
  spec.on_idle = static_cast<OnIdle>(found - kIdleWords.begin());
  return {};
}

std::string get_on_idle(const Spec& spec) {
  return std::string(kIdleWords[static_cast<std::size_t>(spec.on_idle)]);
}

Status set_idle_timeout(Spec& spec, const Given& given) {
  CARREL_ASSIGN(spec.idle_timeout, parse_duration(given));
  return {};
}

Status set_on_failure(Spec& spec, const Given& given) {
  const auto found = std::find(kFailureWords.begin(), kFailureWords.end(), given.text);
  if (found == kFailureWords.end()) {
    return unknown_word(given, "unknown end of a sandbox that died", kFailureWords);
  }
  spec.on_failure = static_cast<OnFailure>(found - kFailureWords.begin());
  return {};
}

std::string get_on_failure(const Spec& spec) {
  return std::string(kFailureWords[static_cast<std::size_t>(spec.on_failure)]);
}

Status set_service(Spec& spec, const Given& given) {
  CARREL_ASSIGN(Service service, parse_service(given));
  for (Service& known : spec.services) {
    if (known.name == service.name) {
      known = std::move(service);
      return {};
    }
  }
  if (spec.services.size() == kMostServices) {
    return bad_value({given.name, service.name}, "more than 8 services");
  }
  spec.services.push_back(std::move(service));
  return {};
}

std::string get_service(const Spec& spec) {
  std::string text;
  for (const Service& service : spec.services) {
    text += (text.empty() ? "" : "; ") + service_text(service);
  }
  return text;
}

Status refuse_tier(Spec&, const Given& given) {
  constexpr std::array<std::string_view, 3> kWords = {"low", "medium", "high"};
  if (std::find(kWords.begin(), kWords.end(), given.text) == kWords.end()) {
    return unknown_word(given, "unknown tier", kWords);
  }
  return not_built(given, "there are no tiers in this version; set the limits one by one");
}

std::string get_env(const Spec& spec) {
  std::string names;
  for (const EnvironmentVariable& variable : spec.environment) {
    names += names.empty() ? "" : ",";
    names += variable.name;
  }
  return names;
}

std::string get_mount(const Spec& spec) {
  std::vector<std::string> mounts;
  for (const Mount& mount : spec.mounts) {
    mounts.push_back(concat(
        {mount.source, ":", mount.target, mount.mode == MountMode::kReadWrite ? ":rw" : ":ro"}));
  }
  return joined(mounts);
}

std::string get_allowed_read_paths(const Spec& spec) {
  return joined(spec.mount_grants.read_paths);
}
std::string get_allowed_write_paths(const Spec& spec) {
  return joined(spec.mount_grants.write_paths);
}

std::string get_require(const Spec& spec) {
  std::string names;
  for (const ProtectionName& row : kProtections) {
    if (std::find(spec.required.begin(), spec.required.end(), row.protection) !=
        spec.required.end()) {
      names += names.empty() ? "" : ",";
      names += row.name;
    }
  }
  return names;
}

std::string get_credential(const Spec& spec) {
  std::string text;
  for (const Credential& credential : spec.network.credentials) {
    text += (text.empty() ? "" : "; ") + credential_text(credential);
  }
  return text;
}

std::string get_network_out(const Spec& spec) {
  return byte_budget_text(spec.network.budgets.bytes_out);
}
std::string get_network_in(const Spec& spec) {
  return byte_budget_text(spec.network.budgets.bytes_in);
}

}  // namespace carrel::policy::setters
