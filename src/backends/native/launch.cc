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
#include <ctime>
#include <utility>

#include "backends/native/id_ranges.h"
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

// CRITICAL: id 0 stays unmapped. /proc shows an undumpable process as owned by the root of its
// namespace; if that were the workload's own id, the guest's files there would be the workload's.
std::string id_map(std::uint32_t outside) {
  return std::to_string(kInnerId) + " " + std::to_string(outside) + " 1";
}

// As root: the sandbox's own ids.
Status write_maps(pid_t pid, std::uint32_t range) {
  const std::string process = "/proc/" + std::to_string(pid);
  CARREL_ASSIGN(UniqueFd directory, open_at(AT_FDCWD, process, O_PATH | O_DIRECTORY));
  const std::string map = id_map(kFirstSandboxId + range * kIdsPerSandbox);
  CARREL_TRY(write_value_at(directory.get(), "gid_map", map));
  return write_value_at(directory.get(), "uid_map", map);
}

Status send_frame(int socket, protocol::FrameType type, std::string_view payload,
                  const std::vector<int>& descriptors) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), 0, type}, head);
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
    case ChildStep::kPriority:
      step = "give up the real-time priority";
      break;
    case ChildStep::kMaps:
      step = "map its user id";
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

const kernel::SeccompProgram& workload_filter() {
  static const kernel::SeccompProgram program = kernel::compile(policy::workload_syscalls());
  return program;
}

const kernel::SeccompProgram& guest_filter() {
  static const kernel::SeccompProgram program = kernel::compile(policy::guest_syscalls());
  return program;
}

std::string encode_plan(const MountPlan& plan) {
  std::string payload(plan.staging.size() + plan.steps.size() + 64, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_plan(writer, {plan.staging, plan.steps});
  payload.resize(writer.size());
  return payload;
}

std::string encode_boot(const LaunchRequest& request, const SandboxGroups& groups,
                        const EnforcementFacts& facts) {
  const policy::Spec& spec = request.spec;
  protocol::Boot boot;
  boot.id = request.id;
  boot.flags = (request.lifetime == Lifetime::kOneShot ? protocol::kBootOneShot : 0U) |
               (request.listener.valid() ? protocol::kBootListener : 0U) |
               (facts.landlock_abi > 0 ? protocol::kBootLandlock : 0U) |
               (spec.root_mode == policy::RootMode::kReadOnly ? 0U : protocol::kBootWritableRoot);
  boot.own_join_descriptors = static_cast<std::uint32_t>(groups.join.size());
  boot.join_descriptors = static_cast<std::uint32_t>(groups.work_join.size());
  boot.hostname = spec.hostname;
  boot.uid = kInnerId;
  boot.gid = kInnerId;
  // The guest, the spawner and a minder count too: they have the same user.
  boot.processes = spec.limits.pids + (request.lifetime == Lifetime::kOneShot ? 1 : 3);
  if (facts.cgroup.pids != kernel::CgroupSource::kNone) {
    boot.processes += kSpareProcesses;
  }
  boot.open_files = spec.limits.open_files;
  boot.file_bytes = kLargestFile;
  if (facts.cgroup.memory == kernel::CgroupSource::kNone) {
    boot.memory_watch_bytes = spec.limits.memory_bytes;
  }
  if (facts.cgroup.cpu == kernel::CgroupSource::kNone) {
    boot.cpus = (spec.limits.cpu_millis + 999) / 1000;
  }
  boot.lease_ms = request.lease_ms;
  boot.workdir = spec.workdir;
  const std::vector<std::string> variables = environment_of(spec);
  const std::string environment = pack(variables);
  boot.environment = {static_cast<std::uint32_t>(variables.size()), environment};
  const std::vector<std::string> paths = writable_paths(spec);
  const std::string writable = pack(paths);
  boot.writable = {static_cast<std::uint32_t>(paths.size()), writable};
  boot.workload_filter = bytes_of(workload_filter());
  // The guest of a one-shot sandbox needs no more than its command: the stricter filter is loaded
  // once, and both are under it.
  boot.guest_filter = request.lifetime == Lifetime::kOneShot ? boot.workload_filter
                                                             : bytes_of(guest_filter());
  std::string payload(environment.size() + writable.size() + boot.guest_filter.size() +
                          boot.workload_filter.size() + 8192,
                      '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_boot(writer, boot);
  payload.resize(writer.size());
  return payload;
}

EnforcementFacts facts_of(const HostSetup& host, const SandboxGroups& groups, Lifetime lifetime) {
  EnforcementFacts facts;
  facts.landlock_abi = host.landlock_abi;
  facts.root = ::geteuid() == 0;
  using kernel::Controller;
  facts.why_no_memory = host.cgroups.why_missing(Controller::kMemory);
  facts.why_no_cpu = host.cgroups.why_missing(Controller::kCpu);
  facts.why_no_pids = host.cgroups.why_missing(Controller::kPids);
  if (!host.why_no_scope.empty()) {
    for (std::string* why : {&facts.why_no_memory, &facts.why_no_cpu, &facts.why_no_pids}) {
      *why += (why->empty() ? "" : "; ") + host.why_no_scope;
    }
  }
  if (lifetime == Lifetime::kLongLived) {
    facts.logout = look_at_logout();
  }
  facts.cgroup = groups.enforced;
  return facts;
}

// How many processors this process may use. Asked of the scheduler: sysconf() would read a file.
std::uint32_t usable_cpus() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) {
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&usable)));
  }
  return static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));  // over 1024
}

bool is_real_time() {
  const int policy = ::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

}  // namespace

// What the child uses of its parent's memory.
struct ChildMemory {
  std::string uid_map;
  std::string gid_map;
  ChildPlan plan;
  ChildStack stack;
};

Result<HostSetup> look_at_setup(const storage::Home& home, const policy::Spec& spec, Look look,
                                KeepersScope keepers) {
  HostSetup host;
  kernel::CgroupOptions options;
  options.label = home.label();
  options.only_limits = look == Look::kOnlyLimits;
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
  return host;
}

Launch::Launch(storage::Home& home, LaunchRequest request)
    : home_(&home), request_(std::move(request)), memory_(std::make_unique<ChildMemory>()) {}

Launch::Launch(Launch&& other) noexcept
    : home_(other.home_),
      request_(std::move(other.request_)),
      pid_(std::exchange(other.pid_, 0)),
      pidfd_(std::move(other.pidfd_)),
      stream_(std::move(other.stream_)),
      report_(std::move(other.report_)),
      memory_(std::move(other.memory_)),
      id_range_(std::exchange(other.id_range_, std::nullopt)) {}

Launch::~Launch() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (id_range_.has_value()) {
    home_->release_ids_of(request_.id);
  }
}

Status Launch::clone(int into) {
  std::array<int, 2> stream{};
  std::array<int, 2> report{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream.data()) != 0) {
    return system_error("make the sandbox's stream");
  }
  stream_.reset(stream[0]);
  UniqueFd guest_end(stream[1]);
  if (::pipe2(report.data(), O_CLOEXEC) != 0) {
    return system_error("make the sandbox's stream");
  }
  report_.reset(report[0]);
  UniqueFd report_write(report[1]);
  ChildPlan& plan = memory_->plan;
  plan.control = guest_end.get();
  plan.report = report_write.get();
  plan.drop_groups = ::geteuid() == 0;
  if (::geteuid() != 0) {
    plan.uid_map = memory_->uid_map = id_map(::geteuid());
    plan.gid_map = memory_->gid_map = id_map(::getegid());
  }
  plan.real_time = is_real_time();
  CloneRequest request;
  request.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                  CLONE_CLEAR_SIGHAND;
  request.cgroup = into;
  const Cloned cloned = clone_guest(request, plan, memory_->stack);
  if (cloned.pid < 0) {
    return clone_error(-cloned.pid);
  }
  pid_ = cloned.pid;
  pidfd_.reset(cloned.pidfd);
  // CRITICAL: it still waits for its program. Later, what it had forked would stay outside.
  if (into >= 0 && !cloned.in_group) {
    return write_value_at(into, "cgroup.procs", std::to_string(pid_));
  }
  return {};
}

Status Launch::send_plan() {
  Identity identity;
  identity.uid = kInnerId;
  identity.gid = kInnerId;
  identity.machine_id = storage::random_hex(32);
  identity.boot_id = storage::make_id();
  identity.boot_time = ::time(nullptr);
  identity.cpus = std::min(usable_cpus(), (request_.spec.limits.cpu_millis + 999) / 1000);
  CARREL_ASSIGN(MountPlan plan,
                plan_mounts(request_.spec, look_at_host(), identity, request_.lifetime));
  return send_frame(stream_.get(), protocol::FrameType::kPlan, encode_plan(plan), {});
}

Result<Launch> Launch::begin(storage::Home& home, LaunchRequest request, int clone_into) {
  CARREL_TRY(check_image(request.spec));
  Launch launch(home, std::move(request));
  CARREL_TRY(launch.clone(clone_into));
  auto start = [&]() -> Status {
    if (::geteuid() == 0) {
      CARREL_ASSIGN(launch.id_range_, home.claim_ids(launch.request_.id, kIdRanges));
      CARREL_TRY(write_maps(launch.pid_, *launch.id_range_));
    }
    CARREL_ASSIGN(UniqueFd image, guest::open_image());
    CARREL_TRY(send_image(launch.stream_.get(), image.get()));
    return launch.send_plan();
  };
  if (Status started = start(); !started.ok()) {
    return launch.settle(std::move(started)).error();
  }
  return launch;
}

// Waits until the child has executed the guest, which ends the use of this process's memory; the
// child may know better why something failed.
Status Launch::settle(Status so_far) {
  if (!so_far.ok()) {
    stream_.reset();  // a child that still waits gives up
  }
  constexpr int kExecuteMs = 10'000;
  pollfd executed{report_.get(), POLLIN, 0};
  if (::poll(&executed, 1, kExecuteMs) == 0) {  // somebody on the host stopped it
    return Error{Code::kTimeout, 0, "Failed to create sandbox: its first process hangs", {}};
  }
  ChildFailure failure{};
  ssize_t told;
  do {
    told = ::read(report_.get(), &failure, sizeof failure);
  } while (told < 0 && errno == EINTR);
  return told == static_cast<ssize_t>(sizeof failure) ? Status(child_error(failure)) : so_far;
}

Result<Launched> Launch::finish(const HostSetup& host, SandboxGroups groups) {
  const EnforcementFacts facts = facts_of(host, groups, request_.lifetime);
  auto tell = [&]() -> Status {
    CARREL_TRY(check_required(request_.spec, facts));
    std::vector<int> descriptors;
    if (request_.listener.valid()) {
      descriptors.push_back(request_.listener.get());
    }
    for (const std::vector<UniqueFd>* files : {&groups.join, &groups.work_join}) {
      for (const UniqueFd& fd : *files) {
        descriptors.push_back(fd.get());
      }
    }
    return send_frame(stream_.get(), protocol::FrameType::kBoot,
                      encode_boot(request_, groups, facts), descriptors);
  };
  CARREL_TRY(settle(tell()));
  Launched launched;
  launched.id = request_.id;
  launched.pid = std::exchange(pid_, 0);
  launched.pidfd = std::move(pidfd_);
  launched.stream = sandbox::GuestStream(std::move(stream_));
  launched.groups = std::move(groups);
  launched.id_range = std::exchange(id_range_, std::nullopt);
  launched.enforcement = describe(request_.spec, facts);
  return launched;
}

Result<Launched> launch(storage::Home& home, const HostSetup& host, LaunchRequest request) {
  CARREL_ASSIGN(SandboxGroups groups, make_groups(host.cgroups, request.id, request.spec.limits,
                                                  request.lifetime, Placing::kAtBirth));
  CARREL_ASSIGN(Launch begun, Launch::begin(home, std::move(request), groups.clone_into));
  return begun.finish(host, std::move(groups));
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
