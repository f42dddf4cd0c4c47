#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backends/native/groups.h"
#include "backends/native/guest_process.h"
#include "backends/native/keeper_message.h"
#include "backends/native/launch.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/spec.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::native {

// What is written down of a sandbox with these settings, whose first process is `guest`.
// `start_time` is of that, if it is known.
storage::BoxRecord new_record(const std::string& id, const std::string& name,
                              const policy::Spec& spec, pid_t guest, std::uint64_t start_time = 0);

// A long-lived sandbox that is started and belongs to nobody: it has an id, its box with the lock,
// its range of ids, its control groups, and a first process in namespaces of its own that waits for
// its mount plan. It has built the root of a sandbox that is as most are, and stands outside of it
// still, or has locked itself in as such a one. Nothing of what somebody may ask for is in it, and
// nothing ran in it but the guest's own code. It ends with the process that made it; the destructor
// removes one that was not taken. One that was adopted from another process ends with this one, and
// is removed by that one.
class WarmBox {
 public:
  // `parent` is the control group that it is made in; empty: the one that is found.
  static Result<WarmBox> make(storage::Home& home, std::shared_ptr<const HostSetup> host,
                              std::string parent);
  // Has its first process build a root ahead, for what will most likely be asked for.
  Status build_ahead(const policy::Spec& likely);
  // And then move into it and lock itself in, and waits for that. It can be nothing else from then
  // on. After an error it is of no use.
  Status lock_ahead(const policy::Spec& likely);
  [[nodiscard]] bool is_locked() const { return ahead_.has_value() && !ahead_->boot.empty(); }

  // Gives it to another process, which adopts it. This one stays the parent of the first process.
  struct Lent {
    Offer offer;
    UniqueFd process;  // for whoever is its parent
  };
  Result<Lent> lend();
  static Result<WarmBox> adopt(storage::Home& home, Offer offer);

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const std::string& parent() const { return parent_; }
  // Readable when its first process has ended.
  [[nodiscard]] int pidfd() const { return process_->pidfd(); }
  [[nodiscard]] bool is_alive() const;

  struct Parts {
    UniqueFd lock;
    UniqueFd listener;
    SandboxGroups groups;
    std::optional<std::uint32_t> id_range;
    std::optional<GuestProcess> process;
    std::shared_ptr<const HostSetup> host;  // the groups refer to it
    std::optional<AheadPlan> ahead;         // what it has built
    // Of one that has locked itself in: the limits that its groups have, and the draft of its
    // record.
    std::optional<policy::Limits> limits;
    std::optional<storage::BoxRecord> draft;
  };
  // Everything, to whoever has the lock from now on and so is responsible for the rest.
  Parts take();

  WarmBox(WarmBox&& other) noexcept;
  WarmBox& operator=(WarmBox&&) = delete;
  WarmBox(const WarmBox&) = delete;
  WarmBox& operator=(const WarmBox&) = delete;
  ~WarmBox();

 private:
  WarmBox(storage::Home& home, std::shared_ptr<const HostSetup> host, std::string parent);
  Status start();

  storage::Home* home_;
  std::shared_ptr<const HostSetup> host_;
  std::string parent_;
  std::string id_;
  bool adopted_ = false;
  UniqueFd lock_;  // valid as long as this object is responsible for it
  UniqueFd listener_;
  SandboxGroups groups_;
  std::optional<std::uint32_t> id_range_;
  std::optional<GuestProcess> process_;
  std::optional<AheadPlan> ahead_;
  std::optional<policy::Limits> limits_;
  std::optional<storage::BoxRecord> draft_;
};

}  // namespace carrel::native
