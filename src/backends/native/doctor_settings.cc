#include "backends/native/doctor_settings.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "backends/native/doctor_modules.h"
#include "backends/native/id_ranges.h"
#include "base/files.h"
#include "kernel/cgroup_text.h"

namespace carrel::native {

namespace {

std::string read_text(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path, 4U << 20);
  return text.ok() ? std::move(text.value()) : std::string();
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

template <typename Visit>
void each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

std::vector<std::string_view> split(std::string_view line, std::string_view separators) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(separators, at)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(separators, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text, int base = 10) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \n\0") + 1);
  return text;
}

std::optional<long> read_number(const std::string& path) {
  return parse_number<long>(trimmed(read_text(path)));
}

Container look_for_container() {
  if (std::getenv("KUBERNETES_SERVICE_HOST") != nullptr) {
    return Container::kKubernetes;
  }
  const char* variable = std::getenv("container");
  const std::string kind = variable != nullptr && *variable != '\0'
                               ? std::string(variable)
                               : trimmed(read_text("/run/systemd/container"));
  if (exists("/run/.containerenv") || kind == "podman") {
    return Container::kPodman;
  }
  if (exists("/.dockerenv") || kind == "docker") {
    return Container::kDocker;
  }
  return kind.empty() ? Container::kNone : Container::kOther;
}

std::string apparmor_profile() {
  if (!exists("/sys/module/apparmor")) {
    return {};
  }
  std::string profile = trimmed(read_text("/proc/self/attr/apparmor/current"));
  if (profile.empty()) {
    profile = trimmed(read_text("/proc/self/attr/current"));
  }
  return profile == "unconfined" ? std::string() : profile;
}

// The text of a main file and of its drop-ins, in the order in which they count.
std::vector<std::string> logind_files() {
  std::vector<std::string> texts;
  for (const char* path : {"/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf"}) {
    texts.push_back(read_text(path));
  }
  for (const char* directory : {"/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d",
                                "/etc/systemd/logind.conf.d"}) {
    std::vector<std::string> names;
    (void)each_visible_entry_at(AT_FDCWD, directory,
                                [&](const dirent& entry) { names.emplace_back(entry.d_name); });
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (name.ends_with(".conf")) {
        texts.push_back(read_text(std::string(directory) + "/" + name));
      }
    }
  }
  return texts;
}

}  // namespace

void parse_status(std::string_view status, Surroundings& around) {
  each_line(status, [&](std::string_view line) {
    const std::vector<std::string_view> words = split(line, " \t");
    if (words.size() < 2) {
      return;
    }
    if (words[0] == "Seccomp:") {
      around.under_seccomp = words[1] != "0";
    } else if (words[0] == "CapEff:") {
      around.capabilities = parse_number<std::uint64_t>(words[1], 16).value_or(0);
    } else if (words[0] == "CapBnd:") {
      around.bounding_capabilities = parse_number<std::uint64_t>(words[1], 16).value_or(0);
    }
  });
}

void parse_mounts(std::string_view mountinfo, Surroundings& around) {
  around.in_chroot = true;
  around.root_is_ramfs = false;
  around.proc_mounted = false;
  around.proc_covers.clear();
  each_line(mountinfo, [&](std::string_view line) {
    const std::vector<std::string_view> words = split(line, " ");
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 7 || dash == words.end() || dash + 1 == words.end()) {
      return;
    }
    const std::string place = kernel::unescape_mount_field(words[4]);
    const std::string_view type = *(dash + 1);
    if (place == "/") {  // the later of two hides the earlier
      around.in_chroot = false;
      around.root_is_ramfs = type == "rootfs";
    } else if (place == "/proc") {
      around.proc_mounted = type == "proc" && words[3] == "/";
      around.proc_covers.clear();
    } else if (place.starts_with("/proc/") && place != "/proc/sys/fs/binfmt_misc") {
      around.proc_covers.push_back(place);
    }
  });
}

void parse_controller(std::string_view cgroups, std::string_view name, LimitFacts& limit) {
  each_line(cgroups, [&](std::string_view line) {
    const std::vector<std::string_view> words = split(line, "\t ");
    if (words.size() >= 4 && words[0] == name) {
      limit.on_v1 = words[1] != "0";
      limit.disabled_in_kernel = words[3] == "0";
    }
  });
}

bool map_has_id(std::string_view map, std::uint32_t id) {
  bool found = false;
  each_line(map, [&](std::string_view line) {
    const std::vector<std::string_view> words = split(line, " \t");
    if (words.size() == 3) {
      const std::uint64_t first = parse_number<std::uint64_t>(words[0]).value_or(0);
      const std::uint64_t count = parse_number<std::uint64_t>(words[2]).value_or(0);
      found = found || (id >= first && id - first < count);
    }
  });
  return found;
}

std::string user_name(std::string_view passwd, std::uint32_t uid) {
  std::string name;
  each_line(passwd, [&](std::string_view line) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos || !name.empty()) {
      return;
    }
    const std::string_view rest = line.substr(second + 1);
    if (parse_number<std::uint32_t>(rest.substr(0, rest.find(':'))) == uid) {
      name = line.substr(0, first);
    }
  });
  return name;
}

bool logind_kills(const std::vector<std::string>& files) {
  std::optional<bool> said;
  std::optional<bool> by_default;
  for (const std::string& file : files) {
    each_line(file, [&](std::string_view line) {
      const bool comment = line.starts_with('#');
      line.remove_prefix(comment ? 1 : 0);
      constexpr std::string_view kKey = "KillUserProcesses=";
      if (line.starts_with(kKey)) {
        const std::string value = trimmed(std::string(line.substr(kKey.size())));
        const bool yes = value == "yes" || value == "true" || value == "1" || value == "on";
        (comment ? by_default : said) = yes;
      }
    });
  }
  return said.value_or(by_default.value_or(true));
}

KernelSettings read_kernel_settings() {
  KernelSettings found;
  auto read = [](const char* name) { return read_number(std::string("/proc/sys/") + name); };
  found.unprivileged_userns_clone = read("kernel/unprivileged_userns_clone");
  found.apparmor_restrict_userns = read("kernel/apparmor_restrict_unprivileged_userns");
  found.max_user_namespaces = read("user/max_user_namespaces");
  found.max_mnt_namespaces = read("user/max_mnt_namespaces");
  found.max_pid_namespaces = read("user/max_pid_namespaces");
  found.max_net_namespaces = read("user/max_net_namespaces");
  found.max_ipc_namespaces = read("user/max_ipc_namespaces");
  found.max_uts_namespaces = read("user/max_uts_namespaces");
  found.max_cgroup_namespaces = read("user/max_cgroup_namespaces");
  found.memfd_noexec = read("vm/memfd_noexec");
  found.unprivileged_userfaultfd = read("vm/unprivileged_userfaultfd");
  found.io_uring_disabled = read("kernel/io_uring_disabled");
  found.unprivileged_bpf_disabled = read("kernel/unprivileged_bpf_disabled");
  found.ptrace_scope = read("kernel/yama/ptrace_scope");
  found.protected_symlinks = read("fs/protected_symlinks");
  found.protected_hardlinks = read("fs/protected_hardlinks");
  found.protected_fifos = read("fs/protected_fifos");
  found.protected_regular = read("fs/protected_regular");
  found.ksm_run = read_number("/sys/kernel/mm/ksm/run");
  found.smt_active = read_number("/sys/devices/system/cpu/smt/active");
  found.risky_modules = risky_modules();
  found.core_pattern = trimmed(read_text("/proc/sys/kernel/core_pattern"));
  const std::string swaps = read_text("/proc/swaps");
  found.swap_on = std::count(swaps.begin(), swaps.end(), '\n') > 1;  // the first line is a heading
  return found;
}

void look_at_login(Surroundings& around) {
  around.user = user_name(read_text("/etc/passwd"), around.uid);
  around.systemd = exists("/run/systemd/system");
  if (!around.systemd) {
    return;
  }
  around.in_user_manager =
      read_text("/proc/self/cgroup").find("/user@" + std::to_string(around.uid) + ".service/") !=
      std::string::npos;
  around.lingers = !around.user.empty() && exists("/var/lib/systemd/linger/" + around.user);
  around.logind_kills = logind_kills(logind_files());
}

Surroundings look_around() {
  Surroundings around;
  around.uid = ::geteuid();
  look_at_login(around);
  utsname kernel{};
  around.kernel = ::uname(&kernel) == 0 ? kernel.release : "unknown";
  around.container = look_for_container();
  around.apparmor_profile = apparmor_profile();
  parse_status(read_text("/proc/self/status"), around);
  parse_mounts(read_text("/proc/self/mountinfo"), around);
  around.has_sandbox_ids = map_has_id(read_text("/proc/self/uid_map"), kFirstSandboxId) &&
                           map_has_id(read_text("/proc/self/gid_map"), kFirstSandboxId);
  around.dumpable = ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
  return around;
}

void read_controllers(GroupFacts& groups) {
  const std::string text = read_text("/proc/cgroups");
  parse_controller(text, "memory", groups.memory);
  parse_controller(text, "cpu", groups.cpu);
  parse_controller(text, "pids", groups.pids);
}

}  // namespace carrel::native
