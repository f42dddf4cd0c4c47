#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "backends/native/boot_message.h"
#include "backends/native/guest_process.h"
#include "backends/native/id_ranges.h"
#include "backends/native/launch.h"
#include "backends/native/nursery.h"
#include "egress/registration.h"
#include "guest/image.h"
#include "kernel/captive_network.h"
#include "protocol/frame.h"

// Sandboxes whose walls another program builds. The guest finds its room furnished.
namespace carrel::native {

namespace {

// What a guest cannot see by itself: whether a namespace is its own or this process's. Whoever may
// not look at the guest has only its word for the others.
Status check_apart(pid_t guest) {
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts"}) {
    struct stat own{};
    struct stat theirs{};
    const std::string below = std::string("/ns/") + kind;
    if (::stat(("/proc/self" + below).c_str(), &own) == 0 &&
        ::stat(("/proc/" + std::to_string(guest) + below).c_str(), &theirs) == 0 &&
        own.st_ino == theirs.st_ino) {
      return Error{Code::kUnsupported, 0,
                   std::string("Failed to create sandbox: cannot rely on these walls: it shares "
                               "the host's namespace '") +
                       kind + "'",
                   "run 'carrel doctor'"};
    }
  }
  return {};
}

}  // namespace

Status Launch::start_behind_walls(SandboxGroups& groups, Launched& launched) {
  CARREL_TRY(claim_ids());
  CARREL_TRY(prepare_trees());
  CARREL_TRY(plan());
  sandbox::RoomRequest room;
  room.hostname = request_.spec.hostname;
  room.runtime = request_.spec.runtime;
  room.engine = request_.spec.engine;
  room.id = request_.id;
  room.installation = home_->label();
  room.folder = home_->path() + "/run";
  room.home = home_->path();
  room.limits = request_.spec.limits;
  constexpr std::string_view kFolder = "dir:";
  if (request_.spec.image.starts_with(kFolder)) {
    room.image_folder = request_.spec.image.substr(kFolder.size());
  }
  room.uid = request_.spec.user_id;
  room.gid = request_.spec.group_id;
  room.plan = {mounts_->staging, mounts_->shared, mounts_->alike, mounts_->own};
  for (std::size_t i = 0; i < request_.trees.size(); ++i) {
    const GivenTree& tree = request_.trees[i];
    using Kind = sandbox::RoomRequest::Tree::Kind;
    room.trees.push_back({tree.path,
                          tree.kind == GivenTree::Kind::kFile ? Kind::kFile : Kind::kFolder,
                          tree.mode,
                          trees_[i].mount.valid() ? trees_[i].mount.get() : -1,
                          tree.source.get(),
                          {}});
    for (const GivenTree::Hidden& hidden : tree.hidden) {
      room.trees.back().hidden.push_back(hidden.path);
    }
  }
  room.filter = guest_filter();
  std::array<int, 2> stream{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream.data()) != 0) {
    return system_error("make the sandbox's stream");
  }
  UniqueFd own_end(stream[0]);
  const UniqueFd guest_end(stream[1]);
  CARREL_ASSIGN(const UniqueFd image, guest::open_image());
  room.control = guest_end.get();
  room.image = image.get();
  room.group = groups.clone_into;
  for (const UniqueFd& file : groups.join) {
    room.join.push_back(file.get());
  }
  if (id_range_.has_value()) {
    room.host_id = kFirstSandboxId + *id_range_ * kIdsPerSandbox;
  }
  const bool gvisor = sandbox::are_gvisors(request_.walls);
  const bool own_kernel = sandbox::have_own_kernel(request_.walls);
  if (own_kernel) {
    room.listener = request_.listener.valid() ? request_.listener.get() : -1;
    room.cpus = groups.enforced.cpu == kernel::CgroupSource::kNone
                    ? (request_.spec.limits.cpu_millis + 999) / 1000
                    : 0;
  }
  UniqueFd porter;
  if (own_kernel && !captive_.rules.empty()) {
    CARREL_ASSIGN(porter, egress::bind_porter_socket(*home_, request_.id));
    room.network = porter.get();
    room.captive = messages_of(captive_);
  }
  CARREL_ASSIGN(sandbox::RoomStarted started, request_.walls->start(room));
  if (request_.walls->furnisher() == policy::Furnisher::kBuilder || own_kernel) {
    groups.join.clear();  // it was started in them
  }
  launched.stream =
      sandbox::GuestStream(started.stream.valid() ? std::move(started.stream) : std::move(own_end));
  launched.child = started.child;
  launched.guest = started.guest;
  if (gvisor) {
    request_.listener = std::move(started.door);
  }
  launched.pidfd = std::move(started.guest_process);
  launched.complaints = std::move(started.complaints);
  launched.origin = std::move(started.origin);
  launched.seen = started.seen;
  // CRITICAL: no directory of the host's is given to another kernel.
  return send_frame(launched.stream.fd(), protocol::FrameType::kPlan, encode_plan(*mounts_),
                    own_kernel ? std::vector<int>() : descriptors_of_trees());
}

Result<Launched> Launch::finish_walls(const HostSetup& host, SandboxGroups groups) {
  CARREL_ASSIGN(const std::string builder, request_.walls->describe(request_.spec));
  Launched launched;
  launched.id = request_.id;
  auto start = [&]() -> Status {
    CARREL_TRY(start_behind_walls(groups, launched));
    EnforcementFacts facts = this->facts(host, groups);
    facts.builder = builder;
    facts.builder_warning = request_.walls->warning(request_.spec);
    facts.origin = launched.origin;
    if (launched.seen.has_value()) {
      facts.seen = launched.seen;
      facts.landlock_abi = launched.seen->landlock_abi;
    }
    facts.holders = request_.walls->limit_holders(request_.spec);
    if (!facts.holders.why_not.empty()) {
      facts.why_no_memory = facts.why_no_cpu = facts.why_no_pids = facts.holders.why_not;
    }
    CARREL_TRY(check_required(request_.spec, facts));
    launched.enforcement = describe(request_.spec, facts);
    std::string boot = boot_for(groups, facts);
    std::vector<UniqueFd> descriptors = take_descriptors(groups);
    if (sandbox::are_machines(request_.walls)) {
      descriptors.clear();  // the machine's first process has one in the place of each
    }
    if (request_.walls->furnisher() == policy::Furnisher::kGuest) {
      CARREL_TRY(check_apart(launched.guest));
      return send_frame(launched.stream.fd(), protocol::FrameType::kBoot, boot,
                        numbers_of(descriptors));
    }
    launched.rest.emplace();
    if (!sandbox::are_gvisors(request_.walls)) {  // there it is made already
      launched.rest->network = captive_;
    }
    launched.rest->boot = std::move(boot);
    launched.rest->descriptors = std::move(descriptors);
    return {};
  };
  if (Status started = start(); !started.ok()) {
    const Error error = explain(launched, started.error());
    end_sandbox(launched);
    return error;
  }
  launched.groups = std::move(groups);
  launched.id_range = std::exchange(id_range_, std::nullopt);
  return launched;
}

bool settle_origin(const sandbox::Walls& walls, Launched& launched) {
  const std::string before = launched.origin.from;
  walls.settle_origin(launched.complaints.get(), launched.origin);
  for (Enforcement::Row& row : launched.enforcement.rows) {
    if (row.name == kStartedFrom) {
      row.by = launched.origin.from;
      row.note = launched.origin.note;
    }
  }
  return launched.origin.from != before;
}

Status finish_room(Launched& launched) {
  const Launched::Rest rest = std::move(*launched.rest);
  launched.rest.reset();
  CARREL_TRY(check_apart(launched.guest));
  // CRITICAL: before anything runs there that could use it.
  if (!rest.network.rules.empty()) {
    CARREL_TRY(kernel::make_captive({launched.guest, launched.pidfd.get()}, rest.network));
  }
  return send_frame(launched.stream.fd(), protocol::FrameType::kBoot, rest.boot,
                    numbers_of(rest.descriptors));
}

}  // namespace carrel::native
