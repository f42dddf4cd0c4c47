#include "backends/native/boot_message.h"

#include <algorithm>
#include <utility>

#include "backends/native/host_etc.h"
#include "backends/native/network.h"
#include "egress/trust.h"
#include "kernel/seccomp.h"
#include "policy/syscalls.h"
#include "protocol/boot.h"

namespace carrel::native {

namespace {

constexpr std::uint64_t kLargestFile = 1ULL << 40;
// Where a group holds the process limit it has to be the one that refuses, because it counts that.
constexpr std::uint32_t kSpareProcesses = 64;

std::string pack(const std::vector<std::string>& strings) {
  std::string data;
  for (const std::string& text : strings) {
    data.append(text.c_str(), text.size() + 1);
  }
  return data;
}

std::vector<std::string> environment_of(const policy::Spec& spec) {
  // Where pip puts programs comes first, as in a login shell.
  const std::string own = "/home/" + spec.user + "/.local/bin:";
  std::vector<std::string> variables = {
      "PATH=" + own + "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:" +
          std::string(kOwnPrograms),
      "HOME=/home/" + spec.user,
      "USER=" + spec.user,
      "LOGNAME=" + spec.user,
      "SHELL=/bin/bash",
      // An image has data of its own, or none.
      "LANG=" + (spec.image.starts_with("dir:") ? std::string("C.UTF-8") : language_of_host()),
      "TMPDIR=/tmp",
      "PYTHONUNBUFFERED=1",
  };
  if (!has_network(spec)) {
    // Nothing will be there the next time either; pip says why it failed only before it asks again.
    variables.insert(variables.end(), {"PIP_RETRIES=1", "npm_config_fetch_retries=0"});
  }
  if (spec.network.ends_tls()) {
    const std::vector<std::string> trust = egress::trust_variables();
    variables.insert(variables.end(), trust.begin(), trust.end());
  }
  for (const policy::EnvironmentVariable& variable : spec.environment) {
    const std::string prefix = variable.name + "=";
    std::erase_if(variables, [&](const std::string& entry) { return entry.starts_with(prefix); });
    variables.push_back(prefix + variable.value);
  }
  return variables;
}

std::string_view bytes_of(const kernel::SeccompProgram& program) {
  return {reinterpret_cast<const char*>(program.instructions.data()),
          program.instructions.size() * sizeof(program.instructions[0])};
}

bool writes_to_host(const std::vector<GivenTree>& trees) {
  return std::any_of(trees.begin(), trees.end(), [](const GivenTree& tree) {
    // To a workspace nobody else has a way.
    return tree.mode == policy::MountMode::kReadWrite && tree.target != kWorkspace;
  });
}

const kernel::SeccompProgram& gvisors_workload_filter(const std::vector<GivenTree>& trees) {
  if (writes_to_host(trees)) {
    static const kernel::SeccompProgram kStricter = kernel::compile(
        policy::without_signals_to_first(policy::without_set_id(policy::workload_syscalls())));
    return kStricter;
  }
  static const kernel::SeccompProgram kProgram =
      kernel::compile(policy::without_signals_to_first(policy::workload_syscalls()));
  return kProgram;
}

const kernel::SeccompProgram& workload_filter(const std::vector<GivenTree>& trees) {
  // CRITICAL: a set-id file on the host would give its owner's rights to everybody there.
  if (writes_to_host(trees)) {
    static const kernel::SeccompProgram kStricter =
        kernel::compile(policy::without_set_id(policy::workload_syscalls()));
    return kStricter;
  }
  static const kernel::SeccompProgram kProgram = kernel::compile(policy::workload_syscalls());
  return kProgram;
}

}  // namespace

std::string_view guest_filter() {
  static const kernel::SeccompProgram kProgram = kernel::compile(policy::guest_syscalls());
  return bytes_of(kProgram);
}

std::string encode_plan(const MountPlan& plan) {
  std::string payload(
      plan.staging.size() + plan.shared.size() + plan.alike.size() + plan.own.size() + 64, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_plan(writer, {plan.staging, plan.shared, plan.alike, plan.own});
  payload.resize(writer.size());
  return payload;
}

std::string encode_boot(const LaunchRequest& request, const SandboxGroups& groups,
                        const EnforcementFacts& facts, const kernel::CaptiveNetwork& network,
                        OuterIds outer) {
  const policy::Spec& spec = request.spec;
  const bool guest_locks =
      request.walls == nullptr || request.walls->lock() == sandbox::Lock::kGuests;
  const bool furnished =
      request.walls != nullptr && request.walls->furnisher() == policy::Furnisher::kBuilder;
  const bool gvisor = sandbox::are_gvisors(request.walls);
  const bool own_kernel = sandbox::have_own_kernel(request.walls);
  protocol::Boot boot;
  boot.id = request.id;
  boot.flags =
      (request.lifetime == Lifetime::kOneShot ? protocol::kBootOneShot : 0U) |
      (request.listener.valid() ? (gvisor ? protocol::kBootDoor : protocol::kBootListener) : 0U) |
      (gvisor ? protocol::kBootGvisor : 0U) | (own_kernel ? protocol::kBootAway : 0U) |
      (facts.landlock_abi > 0 ? protocol::kBootLandlock : 0U) |
      (spec.root_mode == policy::RootMode::kReadOnly ? 0U : protocol::kBootWritableRoot) |
      (groups.moves_later ? protocol::kBootMovesLater : 0U) |
      (guest_locks && furnished ? protocol::kBootLocksIn : 0U);
  boot.own_join_descriptors = static_cast<std::uint32_t>(groups.join.size());
  boot.join_descriptors = static_cast<std::uint32_t>(groups.work_join.size());
  boot.hostname = spec.hostname;
  boot.uid = spec.user_id;
  boot.gid = spec.group_id;
  boot.outer_uid = outer.user;
  boot.outer_gid = outer.group;
  // The guest, the spawner and a minder count too: they have the same user.
  boot.processes = spec.limits.pids + (request.lifetime == Lifetime::kOneShot ? 1 : 3);
  if (facts.cgroup.pids != kernel::CgroupSource::kNone && !own_kernel) {
    boot.processes += kSpareProcesses;
  }
  boot.open_files = spec.limits.open_files;
  boot.file_bytes = kLargestFile;
  if (!spec.workspace.empty() && !holds_disk(spec, facts)) {
    boot.file_bytes = std::min<std::uint64_t>(kLargestFile, spec.limits.disk_bytes);
    boot.disk_watch_bytes = spec.limits.disk_bytes;
  }
  // Such a group holds the kernel as well: what the sandbox itself has only that knows.
  if (facts.cgroup.memory == kernel::CgroupSource::kNone || own_kernel) {
    boot.memory_watch_bytes = spec.limits.memory_bytes;
  }
  // A machine of ours has no more than it may use.
  if (facts.cgroup.cpu == kernel::CgroupSource::kNone &&
      (!sandbox::are_machines(request.walls) ||
       sandbox::are_engines(request.walls, spec.backend))) {
    boot.cpus = (spec.limits.cpu_millis + 999) / 1000;
  }
  boot.lease_ms = request.lease_ms;
  boot.workdir = spec.workdir;
  const std::vector<std::string> variables = environment_of(spec);
  const std::string environment = pack(variables);
  boot.environment = {static_cast<std::uint32_t>(variables.size()), environment};
  const std::vector<std::string> paths = writable_paths(spec, request.trees);
  const std::string writable = pack(paths);
  boot.writable = {static_cast<std::uint32_t>(paths.size()), writable};
  boot.workload_filter =
      bytes_of(gvisor ? gvisors_workload_filter(request.trees) : workload_filter(request.trees));
  // The guest of a one-shot sandbox needs no more than its command: the stricter filter is loaded
  // once, and both are under it. Behind somebody else's walls it has its own before it is told.
  boot.guest_filter =
      request.lifetime == Lifetime::kOneShot && guest_locks ? boot.workload_filter : guest_filter();
  boot.captive = messages_of(network);
  std::string payload(environment.size() + writable.size() + boot.guest_filter.size() +
                          boot.workload_filter.size() + network.routes.size() +
                          network.routes6.size() + network.rules.size() + 8192,
                      '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_boot(writer, boot);
  payload.resize(writer.size());
  return payload;
}

}  // namespace carrel::native
