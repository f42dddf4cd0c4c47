#include "policy/settings.h"

#include <array>

#include "policy/setters.h"
#include "policy/size.h"

namespace carrel::policy {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 1> kMemoryNames = {"memory_limit"};
constexpr std::array<std::string_view, 1> kCpusNames = {"cpu_limit"};
constexpr std::array<std::string_view, 1> kPidsNames = {"pids_limit"};
constexpr std::array<std::string_view, 1> kTimeoutNames = {"timeout_seconds"};
constexpr std::array<std::string_view, 1> kDiskNames = {"disk_limit"};
constexpr std::array<std::string_view, 1> kTmpNames = {"tmp_limit"};
constexpr std::array<std::string_view, 1> kWorkdirNames = {"work_dir"};
constexpr std::array<std::string_view, 1> kMountNames = {"mounts"};
constexpr std::array<std::string_view, 1> kCredentialNames = {"credentials"};
constexpr std::array<std::string_view, 1> kImageNames = {"image_name"};

constexpr std::array<std::string_view, 1> kServiceNames = {"services"};

constexpr unsigned bit(Operation operation) { return static_cast<unsigned>(operation); }
constexpr Operations kBuilds{bit(Operation::kRun) | bit(Operation::kCode) |
                             bit(Operation::kCreate)};
constexpr Operations kLongLived{bit(Operation::kCreate)};
constexpr Operations kBuildsAndExec{kBuilds.bits | bit(Operation::kExec)};
constexpr Operations kEvery{kBuildsAndExec.bits | bit(Operation::kShell)};

constexpr auto kLimits = SettingGroup::kLimits;
constexpr auto kInside = SettingGroup::kInside;
constexpr auto kHost = SettingGroup::kHost;
constexpr auto kEverywhere = Offered::kEverywhere;
constexpr auto kConfigOnly = Offered::kConfigOnly;
constexpr auto kNotBuilt = Offered::kNotBuilt;

std::string get_memory(const Spec& spec) { return format_size(spec.limits.memory_bytes); }
std::string get_cpus(const Spec& spec) { return format_cpus(spec.limits.cpu_millis); }
std::string get_pids(const Spec& spec) { return std::to_string(spec.limits.pids); }
std::string get_timeout(const Spec& spec) { return format_duration(spec.limits.timeout); }
std::string get_disk(const Spec& spec) { return format_size(spec.limits.disk_bytes); }
std::string get_tmp(const Spec& spec) { return format_size(spec.limits.tmp_bytes); }
std::string get_workdir(const Spec& spec) { return spec.workdir; }
std::string get_image(const Spec& spec) {
  return spec.image_name.empty() ? spec.image : spec.image_name;
}
std::string get_user(const Spec& spec) { return spec.user; }
std::string get_hostname(const Spec& spec) { return spec.hostname; }
std::string get_cgroup_parent(const Spec& spec) { return spec.cgroup_parent; }
std::string get_writable_root(const Spec& spec) {
  return spec.root_mode == RootMode::kThrowawayOverlay ? "true" : "false";
}
std::string get_workspace(const Spec& spec) { return spec.workspace; }
std::string get_share_workspace(const Spec& spec) {
  return spec.workspace_use == WorkspaceUse::kShared ? "true" : "false";
}
std::string get_network(const Spec& spec) { return network_text(spec.network); }
std::string get_network_enabled(const Spec& spec) {
  return spec.network.mode == NetworkMode::kNone ? "false" : "true";
}
std::string get_network_connections(const Spec& spec) {
  return std::to_string(spec.network.budgets.connections);
}
std::string get_network_lookups(const Spec& spec) {
  return std::to_string(spec.network.budgets.lookups_per_minute);
}
std::string get_idle_timeout(const Spec& spec) { return format_duration(spec.idle_timeout); }
std::string get_true(const Spec&) { return "true"; }
std::string get_backend(const Spec& spec) { return std::string(name_of(spec.backend)); }
std::string get_runtime(const Spec& spec) { return spec.runtime; }
std::string get_isolation(const Spec& spec) {
  return std::string(isolation_of(spec.backend, spec.runtime).kind);
}

// clang-format off
constexpr std::array kSettings = {
    Setting{"memory", kMemoryNames, ValueKind::kSize, "SIZE",
            "memory, with /tmp and without swap (512m)", "",
            kLimits, kEverywhere, kBuilds, setters::set_memory, get_memory},
    Setting{"cpus", kCpusNames, ValueKind::kCores, "NUMBER",
            "cores; fractions work (1)", "",
            kLimits, kEverywhere, kBuilds, setters::set_cpus, get_cpus},
    Setting{"pids", kPidsNames, ValueKind::kCount, "NUMBER",
            "processes and threads (512)", "",
            kLimits, kEverywhere, kBuilds, setters::set_pids, get_pids},
    Setting{"timeout", kTimeoutNames, ValueKind::kDuration, "TIME",
            "end a command after this long (60; in a created sandbox 300)", "",
            kLimits, kEverywhere, kEvery, setters::set_timeout, get_timeout},
    Setting{"disk", kDiskNames, ValueKind::kSize, "SIZE",
            "/workspace and the home folder together, in memory without --workspace (1g)", "",
            kLimits, kEverywhere, kBuilds, setters::set_disk, get_disk},
    Setting{"tmp", kTmpNames, ValueKind::kSize, "SIZE",
            "/tmp and /dev/shm together, counted as memory (100m)", "",
            kLimits, kEverywhere, kBuilds, setters::set_tmp, get_tmp},

    Setting{"env", Names(), ValueKind::kVariables, "NAME=VALUE",
            "set a variable inside; can be given again", "",
            kInside, kEverywhere, kBuildsAndExec, setters::set_env, setters::get_env},
    Setting{"workdir", kWorkdirNames, ValueKind::kText, "PATH",
            "where commands start (/workspace)", "",
            kInside, kEverywhere, kBuildsAndExec, setters::set_workdir, get_workdir},
    Setting{"image", kImageNames, ValueKind::kText, "IMAGE",
            "the root: host, the name of an image, or dir:/absolute/path (host)", "host dir:",
            kInside, kEverywhere, kBuilds, setters::set_image, get_image},
    Setting{"writable-root", Names(), ValueKind::kFlag, "",
            "let the root be changed; the changes go with the sandbox", "",
            kInside, kEverywhere, kBuilds, setters::set_writable_root, get_writable_root},
    Setting{"network", Names(), ValueKind::kNetwork, "POLICY",
            "what can be reached: none, full, allow=HOST,... or deny=HOST,... (none)",
            "none full allow= deny=",
            kInside, kEverywhere, kBuilds, setters::set_network, get_network},
    Setting{"network-enabled", Names(), ValueKind::kFlag, "",
            "another way to say network: false is none, true is full", "",
            kInside, kConfigOnly, kBuilds, setters::set_network_enabled, get_network_enabled},
    Setting{"credential", kCredentialNames, ValueKind::kCredentials, "RULE=HEADER: VALUE",
            "add a header to these requests outside; VALUE has {{ secret.NAME }}", "",
            kInside, kEverywhere, kBuilds, setters::set_credential, setters::get_credential},
    Setting{"network-out", Names(), ValueKind::kSize, "SIZE",
            "bytes that can leave over the network in all (unlimited)", "unlimited",
            kLimits, kEverywhere, kBuilds, setters::set_network_out, setters::get_network_out},
    Setting{"network-in", Names(), ValueKind::kSize, "SIZE",
            "bytes that can come in over the network in all (unlimited)", "unlimited",
            kLimits, kEverywhere, kBuilds, setters::set_network_in, setters::get_network_in},
    Setting{"network-connections", Names(), ValueKind::kCount, "NUMBER",
            "connections at the same time (256)", "",
            kLimits, kEverywhere, kBuilds, setters::set_network_connections,
            get_network_connections},
    Setting{"network-lookups", Names(), ValueKind::kCount, "NUMBER",
            "names that can be looked up in a minute (600)", "",
            kLimits, kEverywhere, kBuilds, setters::set_network_lookups, get_network_lookups},
    Setting{"user", Names(), ValueKind::kText, "NAME",
            "the user inside (agent)", "",
            kInside, kEverywhere, kBuilds, setters::set_user, get_user},
    Setting{"hostname", Names(), ValueKind::kText, "NAME",
            "the host's name inside (sandbox)", "",
            kInside, kEverywhere, kBuilds, setters::set_hostname, get_hostname},

    Setting{"require", Names(), ValueKind::kWords, "LIST",
            "fail unless the host enforces these: memory,cpu,pids,disk,landlock",
            "memory cpu pids disk landlock",
            kHost, kEverywhere, kBuilds, setters::set_require, setters::get_require},
    Setting{"cgroup-parent", Names(), ValueKind::kText, "PATH",
            "make control groups below this one", "",
            kHost, kEverywhere, kBuilds, setters::set_cgroup_parent, get_cgroup_parent},
    Setting{"backend", Names(), ValueKind::kText, "NAME",
            "what builds the sandbox: native, bubblewrap, oci, docker or microvm (native)",
            "native bubblewrap oci docker microvm",
            kHost, kEverywhere, kBuilds, setters::set_backend, get_backend},
    Setting{"runtime", Names(), ValueKind::kText, "NAME",
            "of the backends oci and docker: runc, crun, or runsc (the first of runc and crun); of "
            "docker also kata, unverified; of microvm: qemu or firecracker (qemu)",
            "runc crun runsc kata qemu firecracker",
            kHost, kEverywhere, kBuilds, setters::set_runtime, get_runtime},
    Setting{"isolation", Names(), ValueKind::kText, "KIND",
            "keep it at least so far apart: namespace, gvisor or vm (namespace)",
            "namespace gvisor vm",
            kHost, kEverywhere, kBuilds, setters::set_isolation, get_isolation},
    Setting{"use-sandbox", Names(), ValueKind::kFlag, "",
            "whether tools run in a sandbox at all; only true", "",
            kHost, kConfigOnly, kBuilds, setters::set_use_sandbox, get_true},
    Setting{"allowed-read-paths", Names(), ValueKind::kWords, "PATHS",
            "host paths that may be mounted read-only; with a list, no others may", "",
            kHost, kConfigOnly, kBuilds, setters::set_allowed_read_paths,
            setters::get_allowed_read_paths},
    Setting{"allowed-write-paths", Names(), ValueKind::kWords, "PATHS",
            "host paths that may be mounted writable or read-only; with a list, no others may", "",
            kHost, kConfigOnly, kBuilds, setters::set_allowed_write_paths,
            setters::get_allowed_write_paths},

    Setting{"mount", kMountNames, ValueKind::kMounts, "SRC:DST[:rw]",
            "show a host folder or file inside, read-only unless :rw; can be given again", "",
            kInside, kEverywhere, kBuilds, setters::set_mount, setters::get_mount},
    Setting{"workspace", Names(), ValueKind::kText, "NAME",
            "keep /workspace under this name; made at need", "",
            kInside, kEverywhere, kBuilds, setters::set_workspace, get_workspace},
    Setting{"share-workspace", Names(), ValueKind::kFlag, "",
            "let other sandboxes that say so have the same workspace", "",
            kInside, kEverywhere, kBuilds, setters::set_share_workspace, get_share_workspace},
    Setting{"on-idle", Names(), ValueKind::kText, "WHAT",
            "when nobody uses it: none, pause, stop or remove; for carrel serve (none)",
            "none pause stop remove",
            kHost, kEverywhere, kLongLived, setters::set_on_idle, setters::get_on_idle},
    Setting{"idle-timeout", Names(), ValueKind::kDuration, "TIME",
            "after how long that is (1h)", "",
            kHost, kEverywhere, kLongLived, setters::set_idle_timeout, get_idle_timeout},
    Setting{"on-failure", Names(), ValueKind::kText, "WHAT",
            "when it dies: none, or recreate with its id and workspace (none)", "none recreate",
            kHost, kEverywhere, kLongLived, setters::set_on_failure, setters::get_on_failure},
    Setting{"service", kServiceNames, ValueKind::kServices, "NAME[:PORT]=COMMAND",
            "a program that runs as long as it does, ready when PORT is open; can be given again",
            "", kInside, kEverywhere, kLongLived, setters::set_service, setters::get_service},
    Setting{"tier", Names(), ValueKind::kText, "TIER",
            "limits by one word: low, medium or high", "",
            kLimits, kNotBuilt, kBuilds, setters::refuse_tier, nullptr},
};
// clang-format on

constexpr char folded(char c) { return c == '_' ? '-' : c; }

bool same_name(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (folded(a[i]) != folded(b[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const Setting> settings() { return kSettings; }

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : kSettings) {
    if (same_name(setting.name, name)) {
      return &setting;
    }
    for (const std::string_view alias : setting.aliases) {
      if (same_name(alias, name)) {
        return &setting;
      }
    }
  }
  return nullptr;
}

std::string key_name(std::string_view name) {
  std::string key(name);
  for (char& c : key) {
    c = c == '-' ? '_' : c;
  }
  return key;
}

Spec default_spec(Operation operation) {
  Spec spec;
  spec.limits.timeout = operation == Operation::kCreate ? kLongLivedTimeout : kOneShotTimeout;
  return spec;
}

std::vector<SettingValue> dump_settings(const Spec& spec) {
  std::vector<SettingValue> values;
  values.reserve(kSettings.size());
  for (const Setting& setting : kSettings) {
    if (setting.get != nullptr) {
      values.push_back({setting.name, setting.kind, setting.get(spec)});
    }
  }
  return values;
}

}  // namespace carrel::policy
