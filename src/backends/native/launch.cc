#include "backends/native/launch.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "backends/native/launch_child.h"
#include "base/files.h"
#include "guest/image.h"
#include "kernel/seccomp.h"
#include "kernel/uapi/landlock.h"
#include "policy/syscalls.h"
#include "protocol/boot.h"
#include "protocol/frame.h"

namespace carrel::native {

namespace {

// As root each sandbox has a range of 65,536 ids of its own. These lie above what systemd hands
// out to containers and below 2^31, where some programs stop counting.
constexpr std::uint32_t kFirstRange = 0x70000000;
constexpr std::uint32_t kRangeSize = 0x10000;
constexpr std::uint32_t kRanges = 4096;

constexpr std::uint32_t kInnerId = 1000;
constexpr std::uint64_t kLargestFile = 1ULL << 40;

std::string pack(const std::vector<std::string>& strings) {
  std::string data;
  for (const std::string& text : strings) {
    data.append(text.c_str(), text.size() + 1);
  }
  return data;
}

std::vector<std::string> environment_of(const policy::Spec& spec) {
  std::vector<std::string> variables = {
      "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
      "HOME=/home/" + spec.user,
      "USER=" + spec.user,
      "LOGNAME=" + spec.user,
      "SHELL=/bin/bash",
      "LANG=C.UTF-8",
      "TMPDIR=/tmp",
      "PYTHONUNBUFFERED=1",
  };
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

std::uint64_t cpu_mask(std::uint32_t cpu_millis) {
  std::uint64_t allowed = 0;
  if (::syscall(SYS_sched_getaffinity, 0, sizeof allowed, &allowed) < 0) {
    return 0;  // more than 64 processors: no mask
  }
  std::uint32_t wanted = (cpu_millis + 999) / 1000;
  std::uint64_t mask = 0;
  for (int i = 0; i < 64 && wanted > 0; ++i) {
    if ((allowed >> i & 1) != 0) {
      mask |= 1ULL << i;
      --wanted;
    }
  }
  return mask;
}

Status write_maps(pid_t pid, std::optional<std::uint32_t> range) {
  const std::string process = "/proc/" + std::to_string(pid);
  CARREL_ASSIGN(UniqueFd directory, open_at(AT_FDCWD, process, O_PATH | O_DIRECTORY));
  std::string uid = "0 " + std::to_string(::geteuid()) + " 1";
  std::string gid = "0 " + std::to_string(::getegid()) + " 1";
  if (range.has_value()) {
    uid = gid = "0 " + std::to_string(kFirstRange + *range * kRangeSize) + " 1";
  } else {
    CARREL_TRY(write_value_at(directory.get(), "setgroups", "deny"));
  }
  CARREL_TRY(write_value_at(directory.get(), "gid_map", gid));
  return write_value_at(directory.get(), "uid_map", uid);
}

Status send_boot(int socket, std::string_view payload, const std::vector<int>& descriptors) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header(
      {static_cast<std::uint32_t>(payload.size()), 0, protocol::FrameType::kBoot}, head);
  iovec data{head.data(), head.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(protocol::kMaxBootDescriptors * sizeof(int))>
      control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t size = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    auto* header = reinterpret_cast<cmsghdr*>(control.data());
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(head.size())) {
    return system_error("talk to the sandbox's guest");
  }
  return write_all(socket, payload);
}

Error child_error(int report, const char* fallback) {
  ChildFailure failure{};
  if (::read(report, &failure, sizeof failure) != static_cast<ssize_t>(sizeof failure)) {
    return Error{Code::kSystem, 0, std::string("Failed to create sandbox: ") + fallback, {}};
  }
  const char* step = "execute the guest";
  switch (failure.step) {
    case ChildStep::kJoin:
      step = "join the control groups";
      break;
    case ChildStep::kIdentity:
      step = "take the sandbox's user id";
      break;
    case ChildStep::kDescriptors:
      step = "prepare the guest's descriptors";
      break;
    case ChildStep::kExecute:
      break;
  }
  return Error{Code::kUnsupported, failure.error_number,
               std::string("Failed to create sandbox: cannot ") + step, "run 'carrel doctor'"};
}

Error clone_error(int reason) {
  std::string hint = "run 'carrel doctor'";
  if (reason == EPERM || reason == EACCES) {
    hint = "this host does not let you make user namespaces: run 'carrel doctor'";
  } else if (reason == ENOSPC || reason == EUSERS) {
    hint = "a limit of /proc/sys/user/max_*_namespaces is reached: run 'carrel doctor'";
  }
  return Error{Code::kUnsupported, reason, "Failed to create sandbox: cannot make its namespaces",
               hint};
}

void end(pid_t pid, const UniqueFd& pidfd) {
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  ::waitpid(pid, nullptr, 0);
}

// Everything that is decided before the sandbox's first process exists.
struct Prepared {
  std::string boot;
  SandboxGroups groups;
  std::optional<std::uint32_t> id_range;
  UniqueFd image;
  EnforcementFacts facts;
};

std::string encode_boot(const LaunchRequest& request, const MountPlan& plan,
                        const Prepared& prepared) {
  static const kernel::SeccompProgram guest_filter = kernel::compile(policy::guest_syscalls());
  static const kernel::SeccompProgram workload_filter =
      kernel::compile(policy::workload_syscalls());
  const policy::Spec& spec = request.spec;
  protocol::Boot boot;
  boot.id = request.id;
  boot.flags = (request.lifetime == Lifetime::kOneShot ? protocol::kBootOneShot : 0U) |
               (request.listener.valid() ? protocol::kBootListener : 0U) |
               (prepared.facts.landlock_abi > 0 ? protocol::kBootLandlock : 0U) |
               (spec.root_mode == policy::RootMode::kReadOnly ? 0U : protocol::kBootWritableRoot);
  boot.join_descriptors = static_cast<std::uint32_t>(prepared.groups.work_join.size());
  boot.hostname = spec.hostname;
  boot.staging = plan.staging;
  boot.uid = kInnerId;
  boot.gid = kInnerId;
  // The guest, the spawner and a minder count too: they have the same user.
  boot.processes = spec.limits.pids + (request.lifetime == Lifetime::kOneShot ? 1 : 3);
  boot.open_files = spec.limits.open_files;
  boot.file_bytes = kLargestFile;
  if (prepared.facts.cgroup.memory == kernel::CgroupSource::kNone) {
    boot.memory_watch_bytes = spec.limits.memory_bytes;
  }
  if (prepared.facts.cgroup.cpu == kernel::CgroupSource::kNone) {
    boot.cpu_mask = cpu_mask(spec.limits.cpu_millis);
  }
  boot.lease_ms = request.lease_ms;
  boot.workdir = spec.workdir;
  const std::vector<std::string> variables = environment_of(spec);
  const std::string environment = pack(variables);
  boot.environment = {static_cast<std::uint32_t>(variables.size()), environment};
  const std::string writable = pack(plan.writable);
  boot.writable = {static_cast<std::uint32_t>(plan.writable.size()), writable};
  boot.plan = plan.steps;
  boot.guest_filter = bytes_of(guest_filter);
  boot.workload_filter = bytes_of(workload_filter);
  std::string payload(plan.steps.size() + environment.size() + writable.size() +
                          boot.guest_filter.size() + boot.workload_filter.size() + 8192,
                      '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_boot(writer, boot);
  payload.resize(writer.size());
  return payload;
}

Result<Prepared> prepare(storage::Home& home, const HostSetup& host,
                         const LaunchRequest& request) {
  Prepared prepared;
  prepared.facts.landlock_abi = host.landlock_abi;
  prepared.facts.root = ::geteuid() == 0;
  using kernel::Controller;
  prepared.facts.why_no_memory = host.cgroups.why_missing(Controller::kMemory);
  prepared.facts.why_no_cpu = host.cgroups.why_missing(Controller::kCpu);
  prepared.facts.why_no_pids = host.cgroups.why_missing(Controller::kPids);
  CARREL_ASSIGN(prepared.groups,
                make_groups(host.cgroups, request.id, request.spec.limits, request.lifetime));
  prepared.facts.cgroup = prepared.groups.enforced;
  CARREL_TRY(check_required(request.spec, prepared.facts));
  Identity identity;
  identity.uid = kInnerId;
  identity.gid = kInnerId;
  identity.machine_id = storage::random_hex(32);
  identity.cpus = std::min(host.cpus, (request.spec.limits.cpu_millis + 999) / 1000);
  CARREL_ASSIGN(MountPlan plan, plan_mounts(request.spec, host.tree, identity, request.lifetime));
  prepared.boot = encode_boot(request, plan, prepared);
  CARREL_ASSIGN(prepared.image, guest::open_image());
  if (prepared.facts.root) {
    CARREL_ASSIGN(std::uint32_t range, home.claim_ids(request.id, kRanges));
    prepared.id_range = range;
  }
  return prepared;
}

}  // namespace

Result<HostSetup> look_at_setup(const storage::Home& home, const policy::Spec& spec) {
  HostSetup host;
  kernel::CgroupOptions options;
  options.label = home.label();
  if (!spec.cgroup_parent.empty()) {
    options.parent = spec.cgroup_parent;
  }
  CARREL_ASSIGN(host.cgroups, kernel::detect_cgroups(options));
  host.tree = look_at_host();
  long abi = ::syscall(kernel::uapi::kLandlockCreateRuleset, nullptr, 0,
                       kernel::uapi::kLandlockQueryVersion);
  host.landlock_abi = abi > 0 ? static_cast<int>(abi) : 0;
  host.cpus = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return host;
}

Result<Launched> launch(storage::Home& home, const HostSetup& host, LaunchRequest request) {
  auto made = prepare(home, host, request);
  if (!made.ok()) {
    home.release_ids_of(request.id);
    return made.error();
  }
  Prepared& prepared = made.value();

  std::array<int, 2> stream{};
  std::array<int, 2> go{};
  std::array<int, 2> report{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream.data()) != 0 ||
      ::pipe2(go.data(), O_CLOEXEC) != 0 || ::pipe2(report.data(), O_CLOEXEC) != 0) {
    return system_error("make the sandbox's stream");
  }
  UniqueFd host_end(stream[0]);
  UniqueFd guest_end(stream[1]);
  UniqueFd go_read(go[0]);
  UniqueFd go_write(go[1]);
  UniqueFd report_read(report[0]);
  UniqueFd report_write(report[1]);

  std::vector<int> join;
  for (const UniqueFd& fd : prepared.groups.join) {
    join.push_back(fd.get());
  }
  ChildPlan plan;
  plan.join = join;
  plan.go = go_read.get();
  plan.control = guest_end.get();
  plan.image = prepared.image.get();
  plan.report = report_write.get();
  plan.drop_groups = prepared.facts.root;
  CloneRequest clone;
  clone.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                CLONE_NEWUTS | CLONE_CLEAR_SIGHAND;
  clone.cgroup = prepared.groups.clone_into;
  int raw_pidfd = -1;
  pid_t pid = clone_guest(clone, plan, &raw_pidfd);
  if (pid < 0) {
    home.release_ids_of(request.id);
    return clone_error(-pid);
  }
  Launched launched;
  launched.id = request.id;
  launched.pid = pid;
  launched.pidfd.reset(raw_pidfd);
  guest_end.reset();
  report_write.reset();
  go_read.reset();

  auto start = [&]() -> Status {
    CARREL_TRY(write_maps(pid, prepared.id_range));
    if (::write(go_write.get(), "g", 1) != 1) {
      return child_error(report_read.get(), "its first process ended at once");
    }
    std::vector<int> descriptors;
    if (request.listener.valid()) {
      descriptors.push_back(request.listener.get());
    }
    for (const UniqueFd& fd : prepared.groups.work_join) {
      descriptors.push_back(fd.get());
    }
    return send_boot(host_end.get(), prepared.boot, descriptors);
  };
  Status started = start();
  if (!started.ok()) {
    Error error = started.error();
    pollfd wait{report_read.get(), POLLIN, 0};
    if (::poll(&wait, 1, 0) == 1 && (wait.revents & POLLIN) != 0) {
      error = child_error(report_read.get(), "its first process ended");
    }
    end(pid, launched.pidfd);
    home.release_ids_of(request.id);
    return error;
  }
  launched.stream = sandbox::GuestStream(std::move(host_end));
  launched.groups = std::move(prepared.groups);
  launched.id_range = prepared.id_range;
  launched.enforcement = describe(request.spec, prepared.facts);
  return launched;
}

Status clean_up(storage::Home& home, const kernel::CgroupLayout& cgroups, const std::string& id) {
  Status result;
  auto group = kernel::Cgroup::open(cgroups, id);
  if (group.ok()) {
    result = group.value().remove();
  } else if (group.error().code != Code::kNotFound) {
    result = group.error();
  }
  home.release_ids_of(id);
  return result;
}

}  // namespace carrel::native
