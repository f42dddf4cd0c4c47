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
#include <iterator>
#include <utility>

#include "backends/native/boot_message.h"
#include "backends/native/id_ranges.h"
#include "backends/native/image_home.h"
#include "backends/native/launch_child.h"
#include "backends/native/logout.h"
#include "backends/native/mounts.h"
#include "backends/native/network.h"
#include "backends/native/places.h"
#include "backends/native/scope.h"
#include "base/files.h"
#include "egress/registration.h"
#include "egress/trust.h"
#include "guest/image.h"
#include "kernel/captive_network.h"
#include "kernel/uapi/landlock.h"
#include "protocol/boot.h"
#include "protocol/frame.h"
#include "sandbox/builder.h"

namespace carrel::native {

namespace {

bool is_engines(const LaunchRequest& request) {
  return sandbox::are_engines(request.walls, request.spec.backend);
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

// CRITICAL: walls that were asked for and that nobody here can build are not replaced by others.
Status check_walls(const LaunchRequest& request) {
  if (request.walls != nullptr) {
    return request.walls->check(request.spec);
  }
  const policy::Backend backend = request.spec.backend;
  return backend == policy::Backend::kNative
             ? Status()
             : Error{Code::kUnsupported,
                     0,
                     "no sandbox of the backend '" + std::string(policy::name_of(backend)) +
                         "' can be made here",
                     {}};
}

// CRITICAL: a mount that nobody opened and judged would be left out without a word.
Status check_trees(const policy::Spec& spec, const std::vector<GivenTree>& trees) {
  if (!spec.workspace.empty() &&
      std::none_of(trees.begin(), trees.end(),
                   [](const GivenTree& tree) { return tree.target == kWorkspace; })) {
    return Error{Code::kInvalid,
                 0,
                 "Failed to create sandbox: nobody opened the workspace '" + spec.workspace + "'",
                 {}};
  }
  for (const policy::Mount& mount : spec.mounts) {
    const bool there = std::any_of(trees.begin(), trees.end(), [&](const GivenTree& tree) {
      return tree.target == mount.target && tree.mode == mount.mode;
    });
    if (!there) {
      return Error{Code::kInvalid,
                   0,
                   "Failed to create sandbox: nobody checked the mount at '" + mount.target + "'",
                   {}};
    }
  }
  return {};
}

// How many processors this process may use. Asked of the scheduler: sysconf() would read a file.
std::uint32_t usable_cpus() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) {
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&usable)));
  }
  return static_cast<std::uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));  // over 1024
}

}  // namespace

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
  // Out of a group of the engine's nobody but root can take a process.
  const bool engines = spec.backend == policy::Backend::kDocker && ::geteuid() != 0;
  if (!engines) {
    CARREL_ASSIGN(host.cgroups, kernel::detect_cgroups(options));
  }
  long abi = ::syscall(kernel::uapi::kLandlockCreateRuleset, nullptr, 0,
                       kernel::uapi::kLandlockQueryVersion);
  host.landlock_abi = abi > 0 ? static_cast<int>(abi) : 0;
  return host;
}

Launch::Launch(storage::Home& home, LaunchRequest request)
    : home_(&home), request_(std::move(request)), id_range_(request_.id_range) {
  if (has_network(request_.spec)) {
    captive_ = kernel::captive_network();
  }
}

Launch::Launch(Launch&& other) noexcept
    : home_(other.home_),
      request_(std::move(other.request_)),
      into_(other.into_),
      captive_(std::move(other.captive_)),
      ahead_(std::move(other.ahead_)),
      mounts_(std::move(other.mounts_)),
      trees_(std::move(other.trees_)),
      loan_(std::move(other.loan_)),
      made_(std::move(other.made_)),
      lent_(std::move(other.lent_)),
      id_range_(std::exchange(other.id_range_, std::nullopt)) {
  other.loan_.reset();
  other.made_.reset();
  other.lent_.reset();
}

Launch::~Launch() {
  // No process has the ids any more when they are given back.
  made_.reset();
  if (loan_.has_value() && !lent_.has_value()) {
    if (auto lent = loan_->take(); lent.ok()) {
      lent_.emplace(std::move(lent.value()));
    }
  }
  if (lent_.has_value()) {
    end_process(lent_->pidfd.get());
  }
  if (id_range_.has_value() && !request_.id_range.has_value()) {
    home_->release_ids_of(request_.id);
  }
}

Identity make_identity(const policy::Spec& spec) {
  Identity identity;
  identity.uid = spec.user_id;
  identity.gid = spec.group_id;
  identity.machine_id = storage::random_hex(32);
  identity.boot_id = storage::make_id();
  identity.boot_time = ::time(nullptr);
  identity.cpus = std::min(usable_cpus(), (spec.limits.cpu_millis + 999) / 1000);
  return identity;
}

// As root each sandbox has its own.
Status Launch::claim_ids() {
  if (::geteuid() == 0 && !id_range_.has_value()) {
    CARREL_ASSIGN(id_range_, home_->claim_ids(request_.id, kIdRanges));
  }
  return {};
}

Status Launch::plan() {
  if (mounts_.has_value()) {
    return {};
  }
  Identity identity = make_identity(request_.spec);
  if (ahead_.has_value()) {  // nobody else has these either
    identity.machine_id = ahead_->identity.machine_id;
    identity.boot_id = ahead_->identity.boot_id;
  }
  // An engine finds them by their paths.
  const bool machine = sandbox::are_machines(request_.walls) && !is_engines(request_);
  const bool by_mount = id_range_.has_value() || machine;
  const TreesBy by = by_mount ? TreesBy::kMount : TreesBy::kPath;
  CARREL_ASSIGN(mounts_, plan_mounts(request_.spec, look_at_host(), identity, request_.lifetime,
                                     {request_.trees, by}));
  return {};
}

Status Launch::prepare_trees() {
  for (const GivenTree& tree : request_.trees) {
    const std::uint32_t id =
        id_range_.has_value() ? kFirstSandboxId + *id_range_ * kIdsPerSandbox : 0;
    CARREL_ASSIGN(PreparedTree prepared, prepare(tree, id));
    trees_.push_back(std::move(prepared));
  }
  return {};
}

Status Launch::ask(Lender& lender, int into) {
  CARREL_TRY(claim_ids());
  CARREL_TRY(plan());
  loan_ = lender.ask({*mounts_, id_range_, into, messages_of(captive_)});
  into_ = into;
  return {};
}

Result<LentProcess*> Launch::await_network() {
  CARREL_TRY(take_loan());
  const bool ready = lent_.has_value() && !lent_->network.descriptors.empty();
  return ready ? &*lent_ : nullptr;
}

Status Launch::take_loan() {
  if (!loan_.has_value() || lent_.has_value()) {
    return {};
  }
  auto lent = loan_->take();
  if (!lent.ok()) {
    loan_.reset();
    return make(into_);
  }
  lent_.emplace(std::move(lent.value()));
  return {};
}

Status Launch::make(int into) {
  CARREL_ASSIGN(GuestProcess process, GuestProcess::clone(Role::kRoom, into));
  made_.emplace(std::move(process));
  auto start = [&]() -> Status {
    CARREL_TRY(claim_ids());
    if (id_range_.has_value()) {
      CARREL_TRY(made_->map_ids(id_map(kFirstSandboxId + *id_range_ * kIdsPerSandbox)));
    }
    CARREL_TRY(made_->execute());
    return send_plan();
  };
  Status started = start();
  return started.ok() ? started : made_->settle(std::move(started));
}

std::string usual_boot(const LaunchRequest& request, const HostSetup& host,
                       const SandboxGroups& groups) {
  return encode_boot(request, groups, facts_of(host, groups, request.lifetime), {},
                     {kInnerId, kInnerId});
}

std::vector<int> Launch::descriptors_of_trees() const {
  std::vector<int> trees;
  for (std::size_t i = 0; i < trees_.size(); ++i) {
    const UniqueFd& mount = trees_[i].mount;
    trees.push_back(mount.valid() ? mount.get() : request_.trees[i].source.get());
  }
  return trees;
}

Result<Launch> Launch::begin_with(storage::Home& home, LaunchRequest request, GuestProcess process,
                                  std::optional<AheadPlan> ahead) {
  CARREL_TRY(check_walls(request));
  CARREL_TRY(check_image(request.spec));
  CARREL_TRY(check_trees(request.spec, request.trees));
  Launch launch(home, std::move(request));
  launch.made_.emplace(std::move(process));
  launch.ahead_ = std::move(ahead);
  CARREL_TRY(launch.send_plan());
  return launch;
}

Result<Launch> Launch::begin(storage::Home& home, LaunchRequest request, int clone_into,
                             Lender* lender) {
  CARREL_TRY(check_walls(request));
  CARREL_TRY(check_image(request.spec));
  CARREL_TRY(check_trees(request.spec, request.trees));
  Launch launch(home, std::move(request));
  if (launch.request_.walls != nullptr) {  // they are built in its groups
    return launch;
  }
  // Whoever lends has no part of a root with somebody's trees.
  if (lender != nullptr && launch.request_.trees.empty() && lender->is_there()) {
    CARREL_TRY(launch.ask(*lender, clone_into));
  }
  if (!launch.loan_.has_value()) {
    CARREL_TRY(launch.make(clone_into));
  }
  return launch;
}

EnforcementFacts Launch::facts(const HostSetup& host, const SandboxGroups& groups) const {
  EnforcementFacts facts = facts_of(host, groups, request_.lifetime);
  if (sandbox::are_gvisors(request_.walls)) {
    facts.landlock_abi = 0;
    facts.kernel = EnforcementFacts::Kernel::kGvisors;
  }
  if (is_engines(request_)) {  // none of it is in groups of ours
    facts.cgroup = {};
  }
  if (sandbox::are_machines(request_.walls)) {
    facts.landlock_abi = 1;  // its guest finds out, and there is no sandbox without
    facts.kernel = EnforcementFacts::Kernel::kMachines;
  }
  for (std::size_t i = 0; i < request_.trees.size(); ++i) {
    const GivenTree& tree = request_.trees[i];
    if (is_image_home(tree)) {
      continue;
    }
    facts.trees.push_back(
        {tree.target, tree.mode, trees_.at(i).ownership, tree.owner, hidden_text(tree)});
    if (tree.target == kWorkspace) {
      facts.own_disk_bytes = tree.own_bytes;
    }
  }
  return facts;
}

Result<Launched> Launch::finish(const HostSetup& host, SandboxGroups groups) {
  return request_.walls == nullptr ? finish_own(host, std::move(groups))
                                   : finish_walls(host, std::move(groups));
}

std::string Launch::boot_for(const SandboxGroups& groups, const EnforcementFacts& facts) const {
  std::uint32_t outer =
      lent_.has_value() && id_range_.has_value() ? id_in_nursery(*id_range_) : kInnerId;
  if (request_.walls != nullptr && request_.walls->lock() == sandbox::Lock::kGuests &&
      request_.walls->furnisher() == policy::Furnisher::kBuilder) {
    outer = 0;  // the only one of the room's user namespace
  }
  OuterIds ids{outer, outer};
  if (is_engines(request_) &&
      sandbox::are_gvisors(request_.walls)) {  // there is none: the container has the caller's
    ids = {::geteuid(), ::getegid()};
  }
  return encode_boot(request_, groups, facts, captive_, ids);
}

std::vector<UniqueFd> Launch::take_descriptors(SandboxGroups& groups) {
  std::vector<UniqueFd> descriptors;
  if (request_.listener.valid()) {
    descriptors.push_back(std::move(request_.listener));
  }
  for (std::vector<UniqueFd>* files : {&groups.join, &groups.work_join}) {
    std::move(files->begin(), files->end(), std::back_inserter(descriptors));
    files->clear();
  }
  return descriptors;
}

Result<Launched> Launch::finish_own(const HostSetup& host, SandboxGroups groups) {
  CARREL_TRY(take_loan());
  const EnforcementFacts facts = this->facts(host, groups);
  if (Status enforceable = check_required(request_.spec, facts); !enforceable.ok()) {
    return made_.has_value() ? made_->settle(std::move(enforceable)).error() : enforceable.error();
  }
  const std::string boot = boot_for(groups, facts);
  const std::vector<UniqueFd> kept = take_descriptors(groups);
  std::vector<int> descriptors = numbers_of(kept);
  if (is_locked()) {
    CARREL_TRY(check_lock(boot));
    descriptors.clear();  // it has them
  }
  CARREL_TRY(made_.has_value()
                 ? made_->settle(made_->send(protocol::FrameType::kBoot, boot, descriptors))
                 : send_frame(lent_->stream.get(), protocol::FrameType::kBoot, boot, descriptors));
  Launched launched;
  launched.id = request_.id;
  if (made_.has_value()) {
    GuestProcess::Taken taken = made_->take();
    launched.child = taken.child;
    launched.guest = taken.pid;
    launched.pidfd = std::move(taken.pidfd);
    launched.stream = sandbox::GuestStream(std::move(taken.stream));
  } else {
    launched.pidfd = std::move(lent_->pidfd);
    launched.stream = sandbox::GuestStream(std::move(lent_->stream));
    lent_.reset();
    loan_.reset();
  }
  launched.groups = std::move(groups);
  launched.id_range = std::exchange(id_range_, std::nullopt);
  launched.enforcement = describe(request_.spec, facts);
  return launched;
}

void end_sandbox(Launched& launched) {
  launched.stream.close();
  if (launched.pidfd.valid()) {
    end_process(launched.pidfd.get());
  }
  while (launched.child > 0 && ::waitpid(launched.child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Error explain(const Launched& launched, Error error) {
  const std::string why =
      launched.complaints.valid() ? sandbox::read_line(launched.complaints.get()) : "";
  if (!why.empty()) {
    error.code = Code::kUnsupported;
    error.error_number = 0;
    error.message = "Failed to create sandbox: " + why;
  }
  return error;
}

void end_process(int pidfd) {
  ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
  pollfd ended{pidfd, POLLIN, 0};
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
}

Result<Launched> launch(storage::Home& home, const HostSetup& host, LaunchRequest request) {
  if (is_engines(request)) {  // it holds the limits: what is here on the host needs none
    CARREL_ASSIGN(Launch begun, Launch::begin(home, std::move(request), -1));
    return begun.finish(host, SandboxGroups{});
  }
  const bool whole = sandbox::have_own_kernel(request.walls);
  CARREL_ASSIGN(
      SandboxGroups groups,
      make_groups(host.cgroups, request.id,
                  whole ? sandbox::limits_while_building(*request.walls, request.spec.limits)
                        : request.spec.limits,
                  request.lifetime, whole ? Placing::kTogether : Placing::kAtBirth));
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
  for (const std::uint32_t range : home.ids_of(id)) {
    if (auto place = kernel::Cgroup::open(cgroups, place_name(range)); place.ok() && result.ok()) {
      result = place.value().remove();
    }
  }
  egress::remove_registration(home, id);
  // CRITICAL: whoever is left in a group that could not be removed may still have these ids.
  if (result.ok()) {
    home.release_ids_of(id);
  }
  return result;
}

}  // namespace carrel::native
