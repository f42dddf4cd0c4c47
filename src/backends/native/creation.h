#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "backends/native/keeper_message.h"
#include "backends/native/launch.h"
#include "backends/native/scope.h"
#include "backends/native/warm_box.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"
#include "storage/open_state.h"
#include "storage/state.h"

namespace carrel::native {

// The answer to whoever asks for a warm sandbox that is not to be had: he asks for a new one.
Error not_warm();

// A long-lived sandbox on its way: begin() starts it and returns at once, and when `stream_fd()` is
// readable, finish() stores it and lets go of it. Until then it ends with this process. The
// destructor ends what was not finished and removes everything that belongs to it.
class Creation {
 public:
  struct Means {
    const sandbox::Walls* walls = nullptr;  // null: the guest builds its room itself
    // Where the request names no control group, it is made in this one, if there is one.
    const OwnScope* scope = nullptr;
    // Of the request's id: it is made of that, which has to be in the same group.
    std::optional<WarmBox> warm;
  };
  static Result<Creation> begin(storage::Home& home, storage::OpenState& rows,
                                CreateRequest request, Means means);

  Creation(Creation&& other) noexcept;
  Creation& operator=(Creation&&) = delete;
  Creation(const Creation&) = delete;
  Creation& operator=(const Creation&) = delete;
  ~Creation();

  [[nodiscard]] int stream_fd() const { return launched_.stream.fd(); }

  // A child of this process whose sandbox is stored and lives until it is ended.
  struct Finished {
    std::string id;
    pid_t child = 0;
    UniqueFd process;
    sandbox::GuestStream stream;  // of its maker, who may use it as any client
    storage::SandboxRow row;      // as it is stored
  };
  // kUnavailable: not yet; ask again when there is more to read.
  Result<Finished> finish();

 private:
  Creation(storage::Home& home, storage::OpenState& rows, CreateRequest request)
      : home_(&home), rows_(&rows), request_(std::move(request)) {}
  // A first process that builds its room, in new groups or in those of the warm box.
  Result<Launched> launch_new(LaunchRequest job, std::string why_no_scope);
  Result<Launched> launch_warm(LaunchRequest job, WarmBox::Parts warm);
  Status add_row();
  Status draft_record();
  Status store();

  storage::Home* home_;
  storage::OpenState* rows_;
  CreateRequest request_;
  UniqueFd lock_;  // of the box; valid as long as this object is responsible for it
  const sandbox::Walls* walls_ = nullptr;
  Launched launched_;
  std::optional<storage::BoxRecord> draft_;  // that is written already
  storage::SandboxRow row_;
  std::optional<Enforcement>
      noted_;  // what the row tells already; none: it is not there, or not whole
};

// The same at once, of a warm sandbox, by whoever has it.
Result<Creation::Finished> finish_warm(storage::Home& home, storage::OpenState& rows,
                                       CreateRequest request, WarmBox warm);

}  // namespace carrel::native
