#pragma once

#include <sys/types.h>

#include <string>

#include "backends/native/keeper_message.h"
#include "backends/native/launch.h"
#include "backends/native/scope.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::native {

// A long-lived sandbox on its way: begin() starts it and returns at once, and when `stream_fd()` is
// readable, finish() stores it and lets go of it. Until then it ends with this process. The
// destructor ends what was not finished and removes everything that belongs to it.
class Creation {
 public:
  // Where the request names no control group, it is made in `scope`, if there is one.
  static Result<Creation> begin(storage::Home& home, CreateRequest request, const OwnScope& scope);

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
  };
  // kUnavailable: not yet; ask again when there is more to read.
  Result<Finished> finish();

 private:
  Creation(storage::Home& home, CreateRequest request)
      : home_(&home), request_(std::move(request)) {}
  Status store();

  storage::Home* home_;
  CreateRequest request_;
  UniqueFd lock_;  // of the box; valid as long as this object is responsible for it
  Launched launched_;
};

}  // namespace carrel::native
