#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/enforcement.h"
#include "backends/native/given_tree.h"
#include "backends/native/groups.h"
#include "backends/native/guest_process.h"
#include "backends/native/mount_plan.h"
#include "backends/native/nursery.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "kernel/cgroup.h"
#include "policy/spec.h"
#include "sandbox/guest_stream.h"
#include "sandbox/walls.h"
#include "storage/home.h"

namespace carrel::native {

// A sandbox that was just made: its first process runs and has been told how to build the room.
// Whether that went well is the next thing that `stream` says.
struct Launched {
  std::string id;
  pid_t child = 0;  // of this process, to be waited for; 0: there is none
  pid_t guest = 0;  // the first process, which may be the child's child; 0: nobody asks
  UniqueFd pidfd;   // of the first process
  sandbox::GuestStream stream;
  SandboxGroups groups;
  std::optional<std::uint32_t> id_range;
  Enforcement enforcement;
  // Of one behind somebody else's walls: what they said, and what is left to be done when the guest
  // has checked its room.
  UniqueFd complaints;
  sandbox::Origin origin;
  std::optional<sandbox::SeenKernel> seen;
  struct Rest {
    kernel::CaptiveNetwork network;  // empty: it has none
    std::string boot;
    std::vector<UniqueFd> descriptors;  // that go with it
  };
  std::optional<Rest> rest;
};

// That, after kRoomChecked.
Status finish_room(Launched& launched);

// When the guest of a machine is there: tells how that began. True: not as it was told before.
bool settle_origin(const sandbox::Walls& walls, Launched& launched);

struct LaunchRequest {
  std::string id;
  policy::Spec spec;
  Lifetime lifetime = Lifetime::kOneShot;
  UniqueFd listener;  // kLongLived: the bound socket that the guest will listen on; see
                      // give_listener()
  std::uint64_t lease_ms = 0;
  std::vector<GivenTree> trees;  // one for each mount of the spec, and others
  // As root, if the caller has claimed one for it, who then also gives it back if this fails.
  std::optional<std::uint32_t> id_range;
  const sandbox::Walls* walls = nullptr;  // null: the guest builds its room itself
};

// The host as far as sandboxes depend on it; looked at once for many launches.
struct HostSetup {
  kernel::CgroupLayout cgroups;
  int landlock_abi = 0;
  std::string why_no_scope;  // where one was asked for and not given; for the report
};
// What a host has to be asked for: everything, or as little as a sandbox without a keeper needs.
enum class Look { kWhole, kOnlyLimits };
// Whether a sandbox that names no group may be placed in the keeper's scope, where this process can
// have no group of its own. That scope may end at any moment before there is a process in it.
enum class KeepersScope { kUse, kLeave };
Result<HostSetup> look_at_setup(const storage::Home& home, const policy::Spec& spec,
                                Look look = Look::kWhole,
                                KeepersScope keepers = KeepersScope::kLeave);

// A sandbox on its way, in the order of docs/decisions/0003. Its destructor ends one that was not
// finished; nothing is left behind.
class Launch {
 public:
  // Gets a first process, in a v2 control group unless that is -1, and has it begin to build its
  // root, which takes it longer than everything else. The lender, if there is one, is asked first.
  static Result<Launch> begin(storage::Home& home, LaunchRequest request, int clone_into,
                              Lender* lender = nullptr);
  // The same with a first process that waits for its plan already, and has perhaps built
  // `ahead`. It has the ids of the request.
  static Result<Launch> begin_with(storage::Home& home, LaunchRequest request, GuestProcess process,
                                   std::optional<AheadPlan> ahead);
  // The bound socket that the guest will listen on, if the request has none.
  void give_listener(UniqueFd listener) { request_.listener = std::move(listener); }
  // Waits for the first process, if it was asked for: where its network was made ahead, that can be
  // served from now on. Null otherwise.
  Result<LentProcess*> await_network();
  // Tells it the rest. A protection that the spec requires and this host cannot give is
  // kUnsupported.
  Result<Launched> finish(const HostSetup& host, SandboxGroups groups);

  Launch(Launch&& other) noexcept;
  Launch& operator=(Launch&&) = delete;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

 private:
  Launch(storage::Home& home, LaunchRequest request);
  Status claim_ids();
  Status plan();
  Status prepare_trees();
  Status ask(Lender& lender, int into);
  Status take_loan();
  Status make(int into);
  Status send_plan();
  // To one that has locked itself in ahead. kUnavailable: it is not what is wanted.
  Status send_texts();
  [[nodiscard]] Status check_lock(const std::string& boot) const;
  [[nodiscard]] bool is_locked() const { return ahead_.has_value() && !ahead_->boot.empty(); }
  // The same behind walls that somebody else builds.
  Status start_behind_walls(SandboxGroups& groups, Launched& launched);
  [[nodiscard]] std::vector<int> descriptors_of_trees() const;
  [[nodiscard]] EnforcementFacts facts(const HostSetup& host, const SandboxGroups& groups) const;
  [[nodiscard]] std::string boot_for(const SandboxGroups& groups,
                                     const EnforcementFacts& facts) const;
  // What goes with the boot message. They are not the launch's any more.
  std::vector<UniqueFd> take_descriptors(SandboxGroups& groups);
  Result<Launched> finish_own(const HostSetup& host, SandboxGroups groups);
  Result<Launched> finish_walls(const HostSetup& host, SandboxGroups groups);

  storage::Home* home_;
  LaunchRequest request_;
  int into_ = -1;
  kernel::CaptiveNetwork captive_;  // if it has a way out
  std::optional<AheadPlan> ahead_;  // what its first process has built
  std::optional<MountPlan> mounts_;
  std::vector<PreparedTree> trees_;  // of the request's, in their order
  std::optional<Loan> loan_;
  // One of the two.
  std::optional<GuestProcess> made_;
  std::optional<LentProcess> lent_;
  std::optional<std::uint32_t> id_range_;
};

// The boot message of a sandbox whose guest builds its room itself, alone with its files.
std::string usual_boot(const LaunchRequest& request, const HostSetup& host,
                       const SandboxGroups& groups);

// What a sandbox with these settings that is made now is to itself.
Identity make_identity(const policy::Spec& spec);

// All of it at once, with the guest in its groups from its birth.
Result<Launched> launch(storage::Home& home, const HostSetup& host, LaunchRequest request);

// Ends a process and waits until it is gone.
void end_process(int pidfd);
// Ends a sandbox and waits until its first process is gone: then the kernel has ended every other
// one, too.
void end_sandbox(Launched& launched);

// What went wrong with a sandbox whose first process never answered: whoever built its walls may
// know better.
Error explain(const Launched& launched, Error error);

// Gives back what belongs to a sandbox of this id beside its processes: control groups and ids.
// Processes that are still in its groups are ended first.
Status clean_up(storage::Home& home, const kernel::CgroupLayout& cgroups, const std::string& id);

}  // namespace carrel::native
