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
#include "backends/native/logout.h"
#include "backends/native/scope.h"
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
  // CRITICAL: id 0 stays unmapped. /proc shows an undumpable process as owned by the root of its
  // namespace; if that were the workload's own id, the guest's files there would be the workload's.
  const std::string inner = std::to_string(kInnerId) + " ";
  std::string uid = inner + std::to_string(::geteuid()) + " 1";
  std::string gid = inner + std::to_string(::getegid()) + " 1";
  if (range.has_value()) {
    uid = gid = inner + std::to_string(kFirstRange + *range * kRangeSize) + " 1";
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

// "Go" for the child: its ids are mapped, and this is the program that it becomes.
Status send_image(int socket, int image) {
  char byte = 'g';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  auto* header = reinterpret_cast<cmsghdr*>(control.data());
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &image, sizeof image);
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != 1) {
    return system_error("start the sandbox's first process");
  }
  return {};
}

Error child_error(const ChildFailure& failure) {
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

void end(pid_t pid, const UniqueFd& pidfd) {
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  ::waitpid(pid, nullptr, 0);
}

// What is decided for a sandbox before its guest runs.
struct Prepared {
  SandboxGroups groups;
  std::optional<std::uint32_t> id_range;
  EnforcementFacts facts;
};

const kernel::SeccompProgram& workload_filter() {
  static const kernel::SeccompProgram program = kernel::compile(policy::workload_syscalls());
  return program;
}

const kernel::SeccompProgram& guest_filter() {
  static const kernel::SeccompProgram program = kernel::compile(policy::guest_syscalls());
  return program;
}

std::string encode_boot(const LaunchRequest& request, const MountPlan& plan,
                        const Prepared& prepared) {
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
  boot.workload_filter = bytes_of(workload_filter());
  // The guest of a one-shot sandbox needs no more than its command: the stricter filter is loaded
  // once, and both are under it.
  boot.guest_filter = request.lifetime == Lifetime::kOneShot ? boot.workload_filter
                                                             : bytes_of(guest_filter());
  std::string payload(plan.steps.size() + environment.size() + writable.size() +
                          boot.guest_filter.size() + boot.workload_filter.size() + 8192,
                      '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_boot(writer, boot);
  payload.resize(writer.size());
  return payload;
}

// What has to be there when the first process is born.
Result<Prepared> prepare(const HostSetup& host, const LaunchRequest& request) {
  Prepared prepared;
  prepared.facts.landlock_abi = host.landlock_abi;
  prepared.facts.root = ::geteuid() == 0;
  using kernel::Controller;
  prepared.facts.why_no_memory = host.cgroups.why_missing(Controller::kMemory);
  prepared.facts.why_no_cpu = host.cgroups.why_missing(Controller::kCpu);
  prepared.facts.why_no_pids = host.cgroups.why_missing(Controller::kPids);
  if (!request.why_no_scope.empty()) {
    for (std::string* why :
         {&prepared.facts.why_no_memory, &prepared.facts.why_no_cpu, &prepared.facts.why_no_pids}) {
      *why += (why->empty() ? "" : "; ") + request.why_no_scope;
    }
  }
  if (request.lifetime == Lifetime::kLongLived) {
    prepared.facts.logout = look_at_logout();
  }
  CARREL_ASSIGN(prepared.groups,
                make_groups(host.cgroups, request.id, request.spec.limits, request.lifetime));
  prepared.facts.cgroup = prepared.groups.enforced;
  CARREL_TRY(check_required(request.spec, prepared.facts));
  return prepared;
}

// What the guest reads first; it is made while the first process becomes the guest.
Result<std::string> make_boot(const HostSetup& host, const LaunchRequest& request,
                              const Prepared& prepared) {
  Identity identity;
  identity.uid = kInnerId;
  identity.gid = kInnerId;
  identity.machine_id = storage::random_hex(32);
  identity.cpus = std::min(host.cpus, (request.spec.limits.cpu_millis + 999) / 1000);
  CARREL_TRY(check_image(request.spec));
  CARREL_ASSIGN(MountPlan plan,
                plan_mounts(request.spec, look_at_host(), identity, request.lifetime));
  return encode_boot(request, plan, prepared);
}

}  // namespace

Result<HostSetup> look_at_setup(const storage::Home& home, const policy::Spec& spec,
                                KeepersScope keepers) {
  HostSetup host;
  kernel::CgroupOptions options;
  options.label = home.label();
  if (!spec.cgroup_parent.empty()) {
    options.parent = spec.cgroup_parent;
  } else if (keepers == KeepersScope::kUse && ::geteuid() != 0) {
    if (std::string scope = keepers_scope(home); !scope.empty()) {
      options.otherwise = std::move(scope);
    }
  }
  CARREL_ASSIGN(host.cgroups, kernel::detect_cgroups(options));
  long abi = ::syscall(kernel::uapi::kLandlockCreateRuleset, nullptr, 0,
                       kernel::uapi::kLandlockQueryVersion);
  host.landlock_abi = abi > 0 ? static_cast<int>(abi) : 0;
  cpu_set_t usable;  // asked of the scheduler: sysconf() would read a file
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) {
    host.cpus = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&usable)));
  } else {  // more than 1024 processors
    host.cpus = static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
  return host;
}

Result<Launched> launch(storage::Home& home, const HostSetup& host, LaunchRequest request) {
  CARREL_ASSIGN(Prepared prepared, prepare(host, request));
  std::array<int, 2> stream{};
  std::array<int, 2> report{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream.data()) != 0) {
    return system_error("make the sandbox's stream");
  }
  UniqueFd host_end(stream[0]);
  UniqueFd guest_end(stream[1]);
  if (::pipe2(report.data(), O_CLOEXEC) != 0) {
    return system_error("make the sandbox's stream");
  }
  UniqueFd report_read(report[0]);
  UniqueFd report_write(report[1]);

  std::vector<int> join;
  for (const UniqueFd& fd : prepared.groups.join) {
    join.push_back(fd.get());
  }
  ChildPlan plan;
  plan.join = join;
  plan.control = guest_end.get();
  plan.report = report_write.get();
  plan.drop_groups = prepared.facts.root;
  CloneRequest clone;
  clone.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                CLONE_CLEAR_SIGHAND;
  clone.cgroup = prepared.groups.clone_into;
  ChildStack stack;
  int raw_pidfd = -1;
  pid_t pid = clone_guest(clone, plan, stack, &raw_pidfd);
  if (pid < 0) {
    return clone_error(-pid);
  }
  Launched launched;
  launched.id = request.id;
  launched.pid = pid;
  launched.pidfd.reset(raw_pidfd);
  guest_end.reset();
  report_write.reset();

  auto start = [&]() -> Status {
    if (prepared.facts.root) {
      CARREL_ASSIGN(prepared.id_range, home.claim_ids(request.id, kRanges));
    }
    CARREL_TRY(write_maps(pid, prepared.id_range));
    CARREL_ASSIGN(UniqueFd image, guest::open_image());
    CARREL_TRY(send_image(host_end.get(), image.get()));
    CARREL_ASSIGN(std::string boot, make_boot(host, request, prepared));
    std::vector<int> descriptors;
    if (request.listener.valid()) {
      descriptors.push_back(request.listener.get());
    }
    for (const UniqueFd& fd : prepared.groups.work_join) {
      descriptors.push_back(fd.get());
    }
    return send_boot(host_end.get(), boot, descriptors);
  };
  Status started = start();
  if (!started.ok()) {
    host_end.reset();  // a child that still waits gives up
  }
  // The pipe ends when the child executes the guest, and tells why it cannot. Until then the child
  // uses this function's memory.
  constexpr int kExecuteMs = 10'000;
  pollfd executed{report_read.get(), POLLIN, 0};
  if (::poll(&executed, 1, kExecuteMs) == 0) {  // somebody on the host stopped it
    ::syscall(SYS_pidfd_send_signal, launched.pidfd.get(), SIGKILL, nullptr, 0);
    started = Error{Code::kTimeout, 0, "Failed to create sandbox: its first process hangs", {}};
  }
  ChildFailure failure{};
  ssize_t told;
  do {
    told = ::read(report_read.get(), &failure, sizeof failure);
  } while (told < 0 && errno == EINTR);
  if (told == static_cast<ssize_t>(sizeof failure)) {
    started = child_error(failure);
  }
  if (!started.ok()) {
    end(pid, launched.pidfd);
    home.release_ids_of(request.id);
    return started.error();
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
