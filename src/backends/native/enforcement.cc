#include "backends/native/enforcement.h"

#include <string_view>
#include <utility>

#include "backends/native/image_home.h"
#include "policy/file_room.h"
#include "policy/network.h"

namespace carrel::native {

namespace {

const char* words(kernel::CgroupSource source) {
  switch (source) {
    case kernel::CgroupSource::kCgroupV1:
      return "cgroup v1";
    case kernel::CgroupSource::kCgroupV2:
      return "cgroup v2";
    case kernel::CgroupSource::kNone:
      break;
  }
  return "none";
}

constexpr char kBuilder[] = "built by";

bool held(kernel::CgroupSource source) { return source != kernel::CgroupSource::kNone; }

std::string_view note_of(const EnforcementFacts::Tree& tree) {
  switch (tree.ownership) {
    case Ownership::kTop:
      return "in what is mounted inside it, only what everybody may read can be read";
    case Ownership::kUnmapped:
      return "there are no idmapped mounts for it: only what everybody may read can be read";
    case Ownership::kMapped:
      return tree.owner.user == 0 && tree.mode == policy::MountMode::kReadWrite
                 ? "it is root's, and so is what is written there"
                 : "";
    case Ownership::kCallers:
      break;
  }
  return "";
}

Enforcement::Row row_of(const EnforcementFacts::Tree& tree) {
  std::string note(note_of(tree));
  note += (note.empty() || tree.hidden.empty() ? "" : "; ") + tree.hidden;
  return {"mount " + tree.target,
          tree.mode == policy::MountMode::kReadWrite ? "read-write" : "read-only", std::move(note)};
}

}  // namespace

Enforcement describe(const policy::Spec& spec, const EnforcementFacts& facts) {
  Enforcement result;
  auto add = [&](std::string name, std::string by, std::string note = {}) {
    result.rows.push_back({std::move(name), std::move(by), std::move(note)});
  };
  const bool gvisor = facts.kernel == EnforcementFacts::Kernel::kGvisors;
  const bool machine = facts.kernel == EnforcementFacts::Kernel::kMachines;
  const bool shares_kernel =
      facts.seen.has_value() && facts.seen->whose == sandbox::SeenKernel::Whose::kHosts;
  if (gvisor) {
    add("isolation", "gvisor", "the host's kernel sees few of its system calls");
    add("kernel", "gVisor", facts.builder);
    add("commands", "none", "those of one sandbox can open the pipes of each other by /proc/1/fd");
  } else if (shares_kernel) {
    add("isolation", "namespace",
        "unverified: the runtime '" + spec.runtime +
            "' of the engine made no virtual machine: the host's kernel is shared");
    add("kernel", "Linux", "the host's");
  } else if (facts.seen.has_value()) {
    add("isolation", "unverified",
        "a virtual machine by the word of the engine's runtime '" + spec.runtime + "'");
    add("kernel", "Linux", "not the host's, by its boot id");
  } else if (machine) {
    add("isolation", "vm", "a kernel of its own in a virtual machine; its VMM is jailed");
    add("kernel", "Linux", "its own, and not the host's");
  } else {
    add("isolation", "namespace", "the host's kernel is shared: not a wall against kernel bugs");
  }
  if (!facts.builder.empty()) {
    add(kBuilder, facts.builder,
        machine ? "the guest builds its room in it"
                : "what it built was compared with what was asked for");
  }
  if (facts.seen.has_value()) {
    add(kVerified, "no",
        facts.builder_warning +
            (shares_kernel ? "; this one is no virtual machine: its kernel is the host's" : ""));
  } else if (machine) {
    const bool kvm = facts.builder.find(" with KVM") != std::string::npos;
    add("acceleration", kvm ? "KVM" : "none", facts.builder_warning);
    add(kStartedFrom, facts.origin.from, facts.origin.note);
  } else if (!facts.builder_warning.empty()) {
    add(kKnownFlaws, facts.builder, facts.builder_warning);
  }
  add("namespaces", "user, mount, pid, network, ipc, uts, cgroup");
  add("user", facts.root ? "an id of its own" : "the caller's id, unprivileged",
      // An engine starts a container without them.
      facts.root || spec.backend == policy::Backend::kDocker
          ? ""
          : "the caller's supplementary groups cannot be given up");
  add("capabilities", "none");
  add("no_new_privileges", "kernel");
  add("seccomp", "allow-list");
  if (machine && !facts.seen.has_value()) {
    add("landlock", "the machine's kernel");
  } else if (facts.landlock_abi > 0) {
    add("landlock", "abi " + std::to_string(facts.landlock_abi));
  } else {
    add("landlock", "none",
        gvisor ? "gVisor's kernel has no Landlock" : "this kernel has no Landlock");
  }
  add("root", spec.root_mode == policy::RootMode::kReadOnly ? "read-only" : "throw-away overlay");
  for (const EnforcementFacts::Tree& tree : facts.trees) {
    result.rows.push_back(row_of(tree));
  }
  if (spec.network.mode == policy::NetworkMode::kNone) {
    add("network", "none");
  } else {
    add("network", "egress process", policy::network_text(spec.network));
  }
  if (held(facts.cgroup.memory)) {
    const std::string swap = facts.cgroup.swap_accounted ? "" : "swap is not counted on this host";
    add("memory", words(facts.cgroup.memory),
        !gvisor && !machine
            ? swap
            : "with room for its kernel; below that the guest ends who takes too much" +
                  (swap.empty() ? "" : "; " + swap));
  } else if (!facts.holders.memory.empty()) {
    add("memory", facts.holders.memory,
        "beside what it needs itself; a watchdog ends who uses more");
  } else {
    add("memory", "watchdog",
        facts.why_no_memory + "; against accidents, not against a program written to evade it");
  }
  if (held(facts.cgroup.cpu)) {
    add("cpu", words(facts.cgroup.cpu));
  } else if (!facts.holders.cpu.empty()) {
    add("cpu", facts.holders.cpu);
  } else {
    add("cpu", "affinity", facts.why_no_cpu);
  }
  if (gvisor || machine) {
    add("pids", "rlimit",
        gvisor          ? "of gVisor's kernel"
        : shares_kernel ? "of the sandbox's user"
                        : "of the machine's kernel");
  } else if (held(facts.cgroup.pids)) {
    add("pids", words(facts.cgroup.pids));
  } else if (!facts.holders.pids.empty()) {
    add("pids", facts.holders.pids, "and a limit of the sandbox's user");
  } else {
    add("pids", "rlimit", facts.why_no_pids);
  }
  // It cannot mount a part of what it made.
  const std::string apart = spec.backend == policy::Backend::kBubblewrap || gvisor
                                ? " have their sizes each by itself"
                                : "";
  if (spec.workspace.empty()) {
    add("disk", "tmpfs",
        "counted as memory; " + policy::file_room_text(spec) +
            (apart.empty() ? "" : "; /workspace and HOME" + apart));
  } else if (holds_disk(spec, facts)) {
    add("disk", "loop",
        facts.own_disk_bytes < spec.limits.disk_bytes ? "it was made smaller than asked for" : "");
  } else if (facts.own_disk_bytes != 0) {
    add("disk", "watchdog",
        "the workspace was made larger than asked for: who makes it too large is ended");
  } else {
    add("disk", "watchdog",
        "a named workspace has no file system of its own: who makes it too large is ended");
  }
  if (!spec.image_name.empty() && !shows_image_home(spec)) {
    add("home", "empty", "the home of the image is not shown behind these walls");
  }
  add("tmp", "tmpfs", "counted as memory" + (apart.empty() ? "" : "; /tmp and /dev/shm" + apart));
  if (facts.logout.has_value()) {
    const bool ends = facts.logout->effect == Logout::kEnds;
    add("logout", ends ? "ends it" : "leaves it alone",
        ends ? "it ends when you log out; to keep it: " + facts.logout->fix : "");
  }
  return result;
}

bool holds_disk(const policy::Spec& spec, const EnforcementFacts& facts) {
  return facts.own_disk_bytes != 0 && facts.own_disk_bytes <= spec.limits.disk_bytes;
}

void add_clocks(protocol::Clocks clocks, Enforcement& enforcement) {
  if (clocks == protocol::Clocks::kOwn) {
    enforcement.rows.push_back({"clocks", "time namespace", {}});
    return;
  }
  const Enforcement::Row* const builder = enforcement.find(kBuilder);
  enforcement.rows.push_back(
      {"clocks", "none",
       (builder != nullptr ? builder->by + " makes no time namespace"
                           : std::string("this kernel has no time namespaces")) +
           ": the host's uptime can be read"});
}

Status check_required(const policy::Spec& spec, const EnforcementFacts& facts) {
  auto missing = [](const char* name, const std::string& why) {
    return Error{Code::kUnsupported, 0,
                 std::string("'") + name + "' is required and cannot be enforced here: " + why,
                 "run 'carrel doctor'"};
  };
  for (policy::Protection protection : spec.required) {
    switch (protection) {
      case policy::Protection::kMemory:
        if (!held(facts.cgroup.memory) && facts.holders.memory.empty()) {
          return missing("memory", facts.why_no_memory);
        }
        break;
      case policy::Protection::kCpu:
        if (!held(facts.cgroup.cpu) && facts.holders.cpu.empty()) {
          return missing("cpu", facts.why_no_cpu);
        }
        break;
      // RLIMIT_NPROC counts the processes of the sandbox's own user namespace: a real limit.
      case policy::Protection::kPids:
        break;
      // A tmpfs has a size everywhere.
      case policy::Protection::kDisk:
        if (!spec.workspace.empty() && !holds_disk(spec, facts)) {
          return missing("disk",
                         facts.own_disk_bytes != 0
                             ? "the workspace was made larger"
                             : "the workspace has no file system of its own, only a watchdog");
        }
        break;
      case policy::Protection::kLandlock:
        if (facts.landlock_abi <= 0) {
          return missing("landlock", facts.kernel == EnforcementFacts::Kernel::kGvisors
                                         ? "gVisor's kernel has no Landlock"
                                         : "this kernel has no Landlock");
        }
        break;
    }
  }
  return {};
}

}  // namespace carrel::native
