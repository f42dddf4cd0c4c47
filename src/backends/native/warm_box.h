#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backends/native/groups.h"
#include "backends/native/guest_process.h"
#include "backends/native/launch.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::native {

// A long-lived sandbox that is started and belongs to nobody: it has an id, its box with the lock,
// its range of ids, its control groups, and a first process in namespaces of its own that waits for
// its mount plan. Nothing of what somebody may ask for is in it, and nothing ran in it but the
// guest's own code. It ends with the process that made it; the destructor removes one that was not
// taken.
class WarmBox {
 public:
  // `parent` is the control group that it is made in; empty: the one that is found.
  static Result<WarmBox> make(storage::Home& home, std::shared_ptr<const HostSetup> host,
                              std::string parent);

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
  UniqueFd lock_;  // valid as long as this object is responsible for it
  UniqueFd listener_;
  SandboxGroups groups_;
  std::optional<std::uint32_t> id_range_;
  std::optional<GuestProcess> process_;
};

}  // namespace carrel::native
