#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "verify/probes/probe.h"

// What proc, sys and the control groups show and let be set.
namespace carrel::probe {
namespace {

// What would have the kernel start a program on the host. The bytes that are written are the ones
// that were read, so that the host is the same even where the probe finds a way.
void set_kernel_helpers(Report& report, Arguments) {
  for (const char* path :
       {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/core_pipe_limit", "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/domainname", "/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/panic_on_oom",
        "/proc/sys/vm/drop_caches", "/proc/sys/fs/suid_dumpable",
        "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/user/max_user_namespaces",
        "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ping_group_range",
        "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled"}) {
    const std::string old = read_some(path, 4096);
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    report.must_fail(std::string("open ") + path, fd);
    if (fd >= 0) {
      report.must_fail(std::string("write ") + path, ::write(fd, old.data(), old.size()));
      ::close(fd);
    }
  }
  // These have no old value to write back, so they are only opened.
  for (const char* path :
       {"/proc/sysrq-trigger", "/proc/sys/fs/binfmt_misc/register", "/proc/kcore", "/proc/kmsg",
        "/proc/mtrr", "/proc/irq/default_smp_affinity", "/sys/fs/cgroup/release_agent",
        "/sys/fs/cgroup/memory/release_agent", "/sys/power/state", "/sys/kernel/kexec_crash_size",
        "/proc/timer_list", "/proc/bus/pci", "/proc/acpi/wakeup"}) {
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    struct stat info{};
    if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISCHR(info.st_mode)) {
      report.held(std::string(path) + " is covered by a device");
    } else {
      report.must_fail(std::string("open ") + path, fd);
    }
    if (fd >= 0) {
      ::close(fd);
    }
  }
  struct rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  report.expect("a crash leaves no core (" + std::to_string(core.rlim_max) + ")",
                core.rlim_max <= 1);
}

void read_kernel_files(Report& report, Arguments) {
  for (const char* name : {"kcore",         "keys",        "key-users",    "timer_list",
                           "sched_debug",   "interrupts",  "softirqs",     "kallsyms",
                           "kmsg",          "kpagecount",  "kpageflags",   "kpagecgroup",
                           "latency_stats", "timer_stats", "vmallocinfo",  "slabinfo",
                           "modules",       "config.gz",   "iomem",        "ioports",
                           "mtrr",          "zoneinfo",    "buddyinfo",    "pagetypeinfo",
                           "diskstats",     "partitions",  "vmstat",       "sysrq-trigger",
                           "schedstat",     "lockdep",     "pressure/cpu", "pressure/memory",
                           "pressure/io"}) {
    const std::string path = std::string("/proc/") + name;
    report.expect(path + " cannot be read", !can_read(path));
  }
  for (const char* directory :
       {"/proc/acpi", "/proc/scsi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/driver",
        "/proc/asound", "/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel",
        "/sys/module", "/sys/class", "/sys/block", "/sys/fs", "/proc/tty/driver"}) {
    report.expect(std::string(directory) + " is empty", names_in(directory).empty());
  }
}

// Whether what is mounted at `place` is what the host has at /etc under the same name.
bool is_of_etc(const std::string& root, const std::string& place, const std::string& etc) {
  return place.starts_with("/etc/") &&
         root == (etc == "/" ? etc : etc + "/") + place.substr(std::string("/etc/").size());
}

bool is_agreed_root(const std::string& root) {
  for (const char* own :
       {"/", "/null", "/zero", "/full", "/random", "/urandom", "/tty", "/sys", "/empty",
        "/workspace", "/home", "/tmp", "/shm", "/run", "/var-tmp", "/guest"}) {
    if (root == own) {
      return true;
    }
  }
  return root.starts_with("/text");
}

// Whether a layer is told by its path. The number of a descriptor that is closed tells nothing.
bool names_layer(const std::string& line, const std::string& word) {
  const std::size_t at = line.find(word);
  return at != std::string::npos && line.compare(at + word.size(), 15, "=/proc/self/fd/") != 0;
}

constexpr std::string_view kAgreed = "agreed=";

// Whether it is what an argument "agreed=PATH" says, or below that.
bool is_granted(const std::string& root, Arguments arguments) {
  for (const std::string_view argument : arguments) {
    if (argument.starts_with(kAgreed)) {
      const std::string granted(argument.substr(kAgreed.size()));
      if (root == granted || root.starts_with(granted + "/")) {
        return true;
      }
    }
  }
  return false;
}

// Of the last mount there, wherever in the table it stands.
std::string device_of_root(const std::string& table) {
  std::istringstream lines(table);
  std::string line;
  std::string found;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string number, parent, device, root, place;
    fields >> number >> parent >> device >> root >> place;
    if (place == "/") {
      found = device;
    }
  }
  return found;
}

// Arguments: where the host's /usr and /etc are in their file systems, which is elsewhere when its
// root is a subvolume or a directory of a disk; then "agreed=PATH" for each path that the policy
// shows, and other paths of the host, which must neither be told nor lead anywhere.
void look_for_host_paths(Report& report, Arguments arguments) {
  if (arguments.size() < 2) {
    report.open("the probe was not told where the host's /usr and /etc are");
    return;
  }
  const std::string usr = arguments[0];
  const std::string etc = arguments[1];
  std::vector<const char*> secrets;
  for (const char* argument : arguments.subspan(2)) {
    if (!std::string_view(argument).starts_with(kAgreed)) {
      secrets.push_back(argument);
    }
  }
  const std::string table = read_some("/proc/self/mountinfo", 1U << 20);
  const std::string own_device = device_of_root(table);
  std::istringstream lines(table);
  std::string line;
  std::size_t count = 0;
  while (std::getline(lines, line)) {
    ++count;
    std::istringstream fields(line);
    std::string number, parent, device, root, place;
    fields >> number >> parent >> device >> root >> place;
    // A file of the room's own hides what is in its proc; bubblewrap's and those
    // for a runtime have names of their own.
    const bool cover =
        device == own_device && (root == "/etc/machine-id" || root == "/newroot" ||
                                 root.starts_with("/bindfile") || root.starts_with("/bundle/"));
    report.expect("'" + root + "' at " + place + " is agreed",
                  root == usr || is_of_etc(root, place, etc) || is_agreed_root(root) || cover ||
                      is_granted(root, arguments));
    for (const char* word : {"upperdir", "workdir", "lowerdir"}) {
      report.expect(place + " names no layer", !names_layer(line, word));
    }
    for (const char* secret : secrets) {
      report.expect(place + " does not name the host's path", line.find(secret) == line.npos);
    }
  }
  report.expect("there is something to read", count > 0);
  for (const char* secret : secrets) {
    report.must_fail("reach the host's path", ::access(secret, F_OK));
    report.must_fail("reach it through proc",
                     ::access((std::string("/proc/1/root") + secret).c_str(), F_OK));
  }
  for (const char* guess :
       {"/var/lib/carrel", "/root/.local/share/carrel", "/run/docker.sock", "/var/run/docker.sock",
        "/run/containerd", "/run/systemd", "/run/dbus/system_bus_socket", "/run/user",
        "/etc/shadow", "/boot", "/lost+found", "/etc/ssh", "/var/log", "/var/lib"}) {
    report.must_fail(std::string("find ") + guess, ::access(guess, F_OK));
  }
}

void read_first_process(Report& report, Arguments) {
  for (const char* name :
       {"environ", "mem", "maps", "smaps", "pagemap", "auxv", "syscall", "stack", "io",
        "personality", "numa_maps", "wchan", "patch_state", "timers", "ns/mnt"}) {
    const std::string path = std::string("/proc/1/") + name;
    if (::strcmp(name, "wchan") == 0) {
      const std::string text = read_some(path, 64);
      report.expect(path + " tells nothing", text.empty() || text == "0");
    } else {
      report.expect(path + " cannot be read", !can_read(path));
    }
    report.must_fail("open " + path + " for both", ::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  for (const char* name : {"exe", "cwd", "root", "ns/mnt", "ns/user", "ns/net", "ns/pid"}) {
    const std::string path = std::string("/proc/1/") + name;
    std::array<char, 256> target{};
    report.must_fail("read the link " + path,
                     ::readlink(path.c_str(), target.data(), target.size()));
    report.must_fail("open " + path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  for (const char* name : {"fd", "fdinfo", "map_files", "task/1/fd"}) {
    const std::string path = std::string("/proc/1/") + name;
    report.expect(path + " cannot be listed", names_in(path).empty());
  }
  for (int fd = 0; fd < 64; ++fd) {
    const std::string path = "/proc/1/fd/" + std::to_string(fd);
    report.must_fail("open " + path, ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  }
  for (const char* name : {"oom_score_adj", "oom_adj", "comm", "coredump_filter", "autogroup",
                           "timerslack_ns", "clear_refs", "loginuid", "sched", "setgroups",
                           "uid_map", "attr/current", "attr/exec", "make-it-fail", "projid_map"}) {
    const std::string path = std::string("/proc/1/") + name;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
      report.held("open " + path + ": " + error_name(errno));
      continue;
    }
    report.must_fail("write " + path, ::write(fd, "1\n", 2));
    ::close(fd);
  }
}

void read_namespace_quotas(Report& report, Arguments) {
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}) {
    const std::string path = std::string("/proc/sys/user/max_") + kind + "_namespaces";
    report.must_fail("raise " + path, ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  // The others cannot be made without a capability, which only a user namespace would give.
  report.expect("no user namespace is allowed",
                read_some("/proc/sys/user/max_user_namespaces", 32) == "0\n");
}

void reach_control_groups(Report& report, Arguments) {
  constexpr long kCgroup = 0x27e0eb;
  constexpr long kCgroup2 = 0x63677270;
  for (const char* path : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys", "/proc", "/", "/run",
                           "/dev", "/tmp", "/mnt"}) {
    struct statfs info{};
    const bool found = ::statfs(path, &info) == 0;
    report.expect(std::string(path) + " is no control group",
                  !found || (info.f_type != kCgroup && info.f_type != kCgroup2));
  }
  for (const char* name : {"cgroup.procs", "tasks", "memory.max", "pids.max", "release_agent",
                           "notify_on_release", "memory/memory.limit_in_bytes"}) {
    const std::string path = std::string("/sys/fs/cgroup/") + name;
    report.must_fail("open " + path, ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  report.must_fail("make a group", ::mkdir("/sys/fs/cgroup/probe", 0755));
  report.must_fail("mount cgroup", ::mount("none", "/tmp", "cgroup", 0, "memory"));
  report.must_fail("mount cgroup2", ::mount("none", "/tmp", "cgroup2", 0, nullptr));
  std::istringstream lines(read_some("/proc/self/cgroup", 65536));
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t colon = line.rfind(':');
    const std::string path = colon == line.npos ? line : line.substr(colon + 1);
    report.expect("group path '" + path + "' does not name the host's tree",
                  path.find("carrel") == path.npos && path.find("..") == path.npos);
  }
}

// Only processes of this sandbox, each of one process namespace and of one user.
void look_at_processes(Report& report, Arguments) {
  for (const std::string& pid : names_in("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    std::istringstream lines(read_some("/proc/" + pid + "/status", 65536));
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::string key, first, second;
      fields >> key >> first >> second;
      if (key == "NSpid:") {
        report.expect("process " + pid + " has one number", first == pid && second.empty());
      } else if (key == "Uid:") {
        report.expect("process " + pid + " has this user", first == std::to_string(::getuid()));
      }
    }
  }
  for (const int pid : {2, 3, 4, 100, 1000, 4194303}) {
    const std::string path = "/proc/" + std::to_string(pid) + "/status";
    if (::access(path.c_str(), F_OK) != 0) {
      report.must_fail("signal process " + std::to_string(pid), ::kill(pid, 0));
    }
  }
}

constexpr Probe kProbes[] = {
    {"A11_KernelHelpersCannotBeSet", set_kernel_helpers},
    {"A13_KernelFilesAreEmpty", read_kernel_files},
    {"A15_NoPathOfTheHostIsToldOrReachable", look_for_host_paths},
    {"A21_TheFirstProcessIsClosed", read_first_process},
    {"E05_NoNamespaceCanBeMadeByQuota", read_namespace_quotas},
    {"E16_OnlyOwnProcessesAreSeen", look_at_processes},
    {"G15_NoControlGroupIsReachable", reach_control_groups},
};

}  // namespace

std::span<const Probe> proc_probes() { return kProbes; }

}  // namespace carrel::probe
