#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "backends/native/creation.h"
#include "backends/native/scope.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::native {

// One client of the keeper: what it wants, the sandbox that is made for it, and its answer. Nothing
// here waits for anybody: the keeper polls the two descriptors and calls go_on(). A client that
// says nothing, or nonsense, or goes away loses its visit and what was made for it, and nobody else
// notices.
class Visit {
 public:
  // `scope` is the keeper's own.
  Visit(storage::Home& home, const OwnScope& scope, UniqueFd client);

  [[nodiscard]] int client_fd() const { return client_.get(); }
  // -1 when nothing is expected of a guest.
  [[nodiscard]] int guest_fd() const;
  // Milliseconds until go_on() is due without an event; nothing: never.
  [[nodiscard]] std::optional<int> time_left() const;
  [[nodiscard]] bool over() const { return stage_ == Stage::kOver; }

  // Returns a sandbox when one was finished: it is the caller's from then on.
  std::optional<Creation::Finished> go_on(short client_events, short guest_events);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage {
    kAsking,    // its request is not complete
    kBuilding,  // its sandbox is not ready
    kAnswered,  // it has not said that it got the id
    kOver,
  };

  void hear();
  void begin();
  std::optional<Creation::Finished> build();
  void confirm();
  void answer(const Result<std::string>& id);
  void end();

  storage::Home* home_;
  const OwnScope* scope_;
  UniqueFd client_;
  Stage stage_ = Stage::kAsking;
  Clock::time_point deadline_;
  std::string heard_;
  std::vector<UniqueFd> descriptors_;  // that came with it
  std::string id_;
  CreateRequest::Origin origin_ = CreateRequest::Origin::kNew;
  std::optional<Creation> creation_;
};

}  // namespace carrel::native
