#include "backends/native/mount_plan.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "backends/native/image_home.h"
#include "backends/native/plan_writer.h"
#include "kernel/captive_network.h"
#include "policy/file_room.h"
#include "policy/isolation.h"
#include "policy/mount_paths.h"
#include "protocol/boot.h"

namespace carrel::native {

namespace {

using protocol::StepKind;

constexpr std::uint64_t kGuestTmpfsBytes = 16U << 20;
constexpr char kGuestPlace[] = "run/guest";

// What a program can read in /proc beyond its own processes and that tells about the host. These
// are hidden in every sandbox.
constexpr std::array kHiddenFiles = {"keys",        "key-users",     "kallsyms",    "modules",
                                     "interrupts",  "softirqs",      "sched_debug", "schedstat",
                                     "vmstat",      "zoneinfo",      "buddyinfo",   "diskstats",
                                     "partitions",  "swaps",         "config.gz",   "mtrr",
                                     "timer_stats", "latency_stats", "cmdline",     "version"};
// The kernel opens these to the host's root only, and there is nobody with its id in a sandbox.
// They are hidden where that is not so; every mount less makes the sandbox start sooner.
constexpr std::array kPrivateFiles = {"kcore",       "kmsg",       "kpagecount",   "kpageflags",
                                      "kpagecgroup", "iomem",      "ioports",      "slabinfo",
                                      "vmallocinfo", "timer_list", "pagetypeinfo", "sysrq-trigger"};
constexpr std::array kHiddenDirectories = {"acpi", "asound", "scsi",          "bus",     "fs",
                                           "irq",  "driver", "dynamic_debug", "pressure"};

constexpr char kNameServices[] = "etc/nsswitch.conf";

std::string name_services(const std::string& hosts) {
  return "passwd: files\ngroup: files\nhosts: " + hosts + "\nservices: files\nprotocols: files\n";
}

void add_etc(Parts& parts, const policy::Spec& spec, const Identity& identity) {
  PlanWriter& plan = parts.shared;
  const std::string uid = std::to_string(identity.uid);
  const std::string gid = std::to_string(identity.gid);
  std::string users = "root:x:0:0:root:/root:/usr/sbin/nologin\n" + spec.user + ":x:" + uid + ":" +
                      gid + "::/home/" + spec.user + ":/bin/bash\n";
  if (spec.user != "nobody") {
    users += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
  }
  plan.file("etc/passwd", std::move(users));
  plan.file("etc/group", "root:x:0:\n" + spec.user + ":x:" + gid + ":\nnogroup:x:65534:\n");
  plan.file("etc/hosts", "127.0.0.1 localhost " + spec.hostname + "\n::1 localhost\n");
  plan.file("etc/hostname", spec.hostname + "\n");
  // Where a sandbox has no network, nothing is there.
  plan.file("etc/resolv.conf",
            "nameserver " + std::string(kernel::kCaptiveResolver) + "\noptions timeout:2\n");
  plan.file(kEmptyFile, "");
  parts.own.replace(kTmpSlot, kEmptyFile, identity.machine_id + "\n", 0);
  plan.file(kNameServices, name_services("files dns files"));
}

// Where nobody answers, glibc says of every name that it may be known later, and npm and others ask
// for a minute: after that `files` have the last word, which is that there is no such name. Where
// there is a network, who does not answer now may do so later.
void add_network_etc(PlanWriter& own) {
  own.replace(kTmpSlot, kNameServices, name_services("files dns"), 0);
}

void add_dev(Parts& parts, policy::Backend backend) {
  PlanWriter& plan = parts.shared;
  plan.device("/dev/null", "dev/null", 1, 3);
  plan.device("/dev/zero", "dev/zero", 1, 5);
  plan.device("/dev/full", "dev/full", 1, 7);
  plan.device("/dev/random", "dev/random", 1, 8);
  plan.device("/dev/urandom", "dev/urandom", 1, 9);
  plan.device("/dev/tty", "dev/tty", 5, 0);
  plan.directory("dev/pts");
  plan.link("dev/ptmx", "pts/ptmx");
  plan.link("dev/fd", "/proc/self/fd");
  plan.link("dev/stdin", "/proc/self/fd/0");
  plan.link("dev/stdout", "/proc/self/fd/1");
  plan.link("dev/stderr", "/proc/self/fd/2");
  plan.directory("dev/shm");
  parts.alike.simple(StepKind::kDevpts, "dev/pts");
  // Bubblewrap has no way to say it.
  parts.own.attach(kTmpSlot, "shm", "dev/shm", 01777,
                   backend == policy::Backend::kBubblewrap
                       ? 0U
                       : static_cast<std::uint32_t>(protocol::kStepNoExec));
}

std::string memory_text(std::uint64_t bytes) {
  const std::string kilobytes = std::to_string(bytes / 1024);
  return "MemTotal:       " + kilobytes + " kB\nMemFree:        " + kilobytes +
         " kB\nMemAvailable:   " + kilobytes +
         " kB\nBuffers:               0 kB\nCached:                0 kB\nSwapCached:            "
         "0 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\nShmem:                 "
         "0 kB\n";
}

std::string stat_text(const Identity& identity) {
  std::string text = "cpu  0 0 0 0 0 0 0 0 0 0\n";
  for (std::uint32_t i = 0; i < identity.cpus; ++i) {
    text += "cpu" + std::to_string(i) + " 0 0 0 0 0 0 0 0 0 0\n";
  }
  return text + "intr 0\nctxt 0\nbtime " + std::to_string(identity.boot_time) +
         "\nprocesses 0\nprocs_running 1\nprocs_blocked 0\n";
}

// What tells about the host in the new proc is hidden or replaced by text of the sandbox's own.
void add_proc(Parts& parts, const policy::Spec& spec, const Identity& identity) {
  parts.alike.simple(StepKind::kProc, "proc");
  for (const char* name : kHiddenFiles) {
    parts.alike.mask(std::string("proc/") + name, kEmptyFile, protocol::kStepIsFile);
  }
  for (const char* name : kPrivateFiles) {
    parts.alike.mask(std::string("proc/") + name, kEmptyFile,
                     protocol::kStepIsFile | protocol::kStepOptional);
  }
  for (const char* name : kHiddenDirectories) {
    parts.alike.mask(std::string("proc/") + name, kEmptyDirectory, 0);
  }
  parts.alike.simple(StepKind::kReadOnly, "proc/sys");
  const std::array<std::pair<const char*, std::string>, 4> replaced = {{
      {"loadavg", "0.00 0.00 0.00 1/1 1\n"},
      {"meminfo", memory_text(spec.limits.memory_bytes)},
      {"stat", stat_text(identity)},
      {"sys/kernel/random/boot_id", identity.boot_id + "\n"},
  }};
  for (const auto& [name, text] : replaced) {
    parts.own.replace(kTmpSlot, std::string("proc/") + name, text, 0);
  }
}

void add_host_image(PlanWriter& plan, const policy::Spec& spec, const HostTree& host) {
  for (const std::string& name : host.directories) {
    if (spec.root_mode == policy::RootMode::kThrowawayOverlay) {
      plan.overlay("/" + name, name);
    } else {
      plan.bind("/" + name, name, protocol::kStepReadOnly);
    }
  }
  for (const auto& [name, target] : host.links) {
    plan.link(name, target);
  }
}

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

// Calls `visit` with the name and the kind of each entry of a directory.
template <typename Visit>
void each_entry(const std::string& path, Visit visit) {
  std::unique_ptr<DIR, CloseDir> entries(::opendir(path.c_str()));
  while (entries) {
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr) {
      return;
    }
    const std::string name = entry->d_name;
    struct stat info{};
    if (name != "." && name != ".." && ::lstat((path + "/" + name).c_str(), &info) == 0) {
      visit(name, info.st_mode);
    }
  }
}

// Shows one entry of an image at `path`: a directory or file as it is, read-only; a link as a link.
void add_entry(PlanWriter& plan, const policy::Spec& spec, const std::string& source,
               const std::string& path, mode_t mode) {
  if (S_ISLNK(mode)) {
    std::array<char, 4096> target{};
    ssize_t n = ::readlink(source.c_str(), target.data(), target.size());
    if (n > 0) {
      plan.link(path, std::string_view(target.data(), static_cast<std::size_t>(n)));
    }
  } else if (S_ISDIR(mode) && spec.root_mode == policy::RootMode::kThrowawayOverlay) {
    plan.overlay(source, path);
  } else if (S_ISDIR(mode)) {
    plan.bind(source, path, protocol::kStepReadOnly);
  } else if (S_ISREG(mode)) {
    plan.bind(source, path, protocol::kStepReadOnly | protocol::kStepIsFile);
  }
}

// An image in a directory belongs to whoever made it, so nothing can be created in it: its entries
// are shown in a root of our own. What the sandbox brings itself is left out.
void add_directory_image(PlanWriter& plan, const policy::Spec& spec, const std::string& source,
                         std::span<const GivenTree> trees) {
  constexpr std::array kOwnEtc = {"passwd",      "group",      "hosts",        "hostname",
                                  "resolv.conf", "machine-id", "nsswitch.conf"};
  each_entry(source, [&](const std::string& name, mode_t mode) {
    if (is_of_image(name)) {
      add_entry(plan, spec, source + "/" + name, name, mode);
    }
  });
  plan.directory("etc");
  each_entry(source + "/etc", [&](const std::string& name, mode_t mode) {
    if (std::find(kOwnEtc.begin(), kOwnEtc.end(), name) == kOwnEtc.end() &&
        !is_covered("/etc/" + name, trees)) {
      add_entry(plan, spec, source + "/etc/" + name, "etc/" + name, mode);
    }
  });
}

// The staging directory is covered while the root is built, so it must not lead to the image.
std::string choose_staging(const std::string& image) {
  for (const char* candidate : {"/sys", "/tmp", "/mnt", "/run", "/var", "/home"}) {
    struct stat info{};
    const std::string prefix = std::string(candidate) + "/";
    if (::stat(candidate, &info) == 0 && S_ISDIR(info.st_mode) &&
        (image + "/").compare(0, prefix.size(), prefix) != 0) {
      return candidate;
    }
  }
  return "/tmp";
}

}  // namespace

bool is_of_image(const std::string& name) {
  constexpr std::array kOwn = {"proc", "sys",  "dev", "tmp", "run", "var",
                               "home", "root", "etc", "mnt", "srv", "workspace"};
  return std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end();
}

Status check_image(const policy::Spec& spec) {
  if (!spec.image.starts_with("dir:")) {
    return {};
  }
  struct stat info{};
  if (::stat(spec.image.c_str() + 4, &info) != 0) {
    return Error{errno == ENOENT ? Code::kNotFound : Code::kSystem,
                 errno,
                 "Failed to create sandbox: image '" + spec.image + "'",
                 {}};
  }
  if (!S_ISDIR(info.st_mode)) {
    return Error{Code::kInvalid,
                 0,
                 "Failed to create sandbox: image '" + spec.image + "' is not a directory",
                 {}};
  }
  return {};
}

namespace {

// The host's python3, if a sandbox would find no `python` beside it.
std::string missing_python() {
  std::string found;
  for (const std::string folder : {"/usr/local/bin", "/usr/bin", "/bin"}) {
    if (::access((folder + "/python").c_str(), X_OK) == 0) {
      return {};
    }
    if (found.empty() && ::access((folder + "/python3").c_str(), X_OK) == 0) {
      found = folder + "/python3";
    }
  }
  return found;
}

}  // namespace

HostTree look_at_host() {
  HostTree host;
  host.python = missing_python();
  auto note = [&](const struct stat& info) {
    host.sources += std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + " ";
  };
  for (const char* name : {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    const std::string path = std::string("/") + name;
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0) {
      continue;
    }
    if (S_ISLNK(info.st_mode)) {
      std::array<char, 256> target{};
      ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
      if (n > 0 && static_cast<std::size_t>(n) < target.size()) {
        host.links.emplace_back(name, std::string(target.data(), static_cast<std::size_t>(n)));
      }
    } else if (S_ISDIR(info.st_mode)) {
      host.directories.emplace_back(name);
      note(info);
    }
  }
  host.etc = look_at_etc();
  return host;
}

std::vector<std::string> writable_paths(const policy::Spec& spec,
                                        std::span<const GivenTree> trees) {
  std::vector<std::string> paths = {"/workspace", "/home/" + spec.user, "/tmp", "/dev/shm"};
  for (const GivenTree& tree : trees) {
    if (tree.mode == policy::MountMode::kReadWrite) {
      paths.push_back(tree.target);
    }
  }
  return paths;
}

Result<MountPlan> plan_mounts(const policy::Spec& spec, const HostTree& host,
                              const Identity& identity, Lifetime lifetime,
                              const GivenTrees& given) {
  if (given.trees.size() > protocol::kMaxTrees) {
    return Error{Code::kInvalid,
                 0,
                 "a sandbox can have " + std::to_string(protocol::kMaxTrees) + " mounts at most",
                 {}};
  }
  CARREL_TRY(check_targets(spec, host, given.trees));
  MountPlan result;
  Parts parts;
  PlanWriter& shared = parts.shared;
  PlanWriter& own = parts.own;
  const bool from_directory = spec.image.starts_with("dir:");
  const bool read_only = spec.root_mode == policy::RootMode::kReadOnly;
  const std::string source = from_directory ? spec.image.substr(4) : std::string();
  result.staging = choose_staging(source);
  const policy::FileRoom room = policy::file_room(spec);
  own.tmpfs(kDiskSlot, room.disk_bytes, "/workspace");
  own.tmpfs(kTmpSlot, room.tmp_bytes, "/tmp");
  if (!read_only) {
    own.tmpfs(kUpperSlot, room.root_bytes, "the writable root");
  }
  if (lifetime == Lifetime::kLongLived) {
    own.tmpfs(kGuestSlot, kGuestTmpfsBytes, "the guest");
  }
  // Steps in the same directory follow one another: the guest keeps it open.
  const std::string home = "home/" + spec.user;
  if (from_directory) {
    add_directory_image(shared, spec, source, given.trees);
  } else {
    add_host_image(shared, spec, host);
  }
  for (const char* name :
       {"etc", "var", "dev", "home", "opt", "sys", "workspace", "tmp", "run", "proc"}) {
    shared.directory(name);
  }
  shared.directory(home);
  // What an image has there is found by its old name, too.
  const auto image_home = std::find_if(given.trees.begin(), given.trees.end(), is_image_home);
  if (image_home != given.trees.end() && place_of(*image_home) == "/root") {
    shared.link("root", home);
  } else {
    shared.directory("root", 0700);
  }
  const bool by_engine = policy::is_furnished_by_engine(spec.backend, spec.runtime);
  const bool furnished =
      by_engine || policy::furnisher_of(spec.backend) == policy::Furnisher::kBuilder;
  if (furnished) {
    shared.directory(kGuestPlace);
  }
  if (by_engine) {  // where a container has the guest's program and the socket that it calls at
    shared.directory("carrel");
    shared.simple(StepKind::kMountPoint, "carrel/guest", protocol::kStepIsFile);
    shared.simple(StepKind::kMountPoint, "carrel/door", protocol::kStepIsFile);
  }
  shared.link("var/tmp", "../tmp");
  add_etc(parts, spec, identity);
  add_settings(shared, spec, source, given.trees);
  if (!from_directory) {
    add_host_etc(shared, host.etc, given.trees);
  }
  add_dev(parts, spec.backend);
  if (!from_directory) {
    add_python(shared, host);
  }
  add_tree_targets(parts, spec, given.trees);
  if (read_only) {
    shared.simple(StepKind::kSealRoot, "");
  }
  if (lifetime == Lifetime::kLongLived && furnished) {
    // Whoever builds the walls cannot give the guest a mount that is in no tree.
    own.attach(kGuestSlot, "guest", kGuestPlace, 0700);
  }
  // What a tree covers is not made.
  const auto attach = [&](std::uint8_t slot, const char* name, const std::string& path,
                          std::uint32_t mode) {
    const bool covered =
        std::any_of(given.trees.begin(), given.trees.end(),
                    [&](const GivenTree& tree) { return tree.target == "/" + path; });
    if (!covered) {
      own.attach(slot, name, path, mode);
    }
  };
  attach(kDiskSlot, "workspace", "workspace", 0755);
  attach(kTmpSlot, "tmp", "tmp", 01777);
  attach(kDiskSlot, "home", home, 0755);
  add_proc(parts, spec, identity);
  // What not every sandbox of this kind has comes last, so that the rest can be built ahead.
  add_trees(own, given);
  if (spec.network.mode != policy::NetworkMode::kNone) {
    add_network_etc(own);
  }
  if (!spec.code.empty()) {
    own.replace(kTmpSlot, policy::code_path(spec).substr(1), spec.code, protocol::kStepIsFile);
  }
  result.shared = shared.take();
  result.alike = parts.alike.take();
  result.own = own.take();
  if (result.shared.size() + result.alike.size() + result.own.size() > protocol::kMaxPlan) {
    return Error{Code::kResource, 0, "the sandbox's mount plan is too large", {}};
  }
  if (!from_directory) {
    result.sources = host.sources + host.etc.sources;
  }
  if (!from_directory && read_only && lifetime == Lifetime::kOneShot && given.trees.empty()) {
    result.nursing = MountPlan::Nursing::kPossible;
  }
  return result;
}

std::optional<std::string> rest_after(const MountPlan& built, const MountPlan& wanted) {
  // CRITICAL: what is different in one of these is only there after it was built anew.
  if (built.staging != wanted.staging || built.shared != wanted.shared ||
      built.alike != wanted.alike || built.sources != wanted.sources) {
    return std::nullopt;
  }
  std::string rest(wanted.own.size(), '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(rest.data()), rest.size()});
  if (!protocol::write_rest(built.own, wanted.own, writer)) {
    return std::nullopt;
  }
  rest.resize(writer.size());
  return rest;
}

}  // namespace carrel::native
