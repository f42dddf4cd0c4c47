#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/native/creation.h"
#include "backends/native/kept_watches.h"
#include "backends/native/scope.h"
#include "backends/native/warm_pool.h"
#include "base/unique_fd.h"
#include "storage/home.h"
#include "storage/open_state.h"

namespace carrel::native {

// One client of the keeper: what it wants, the sandbox that is made for it, and its answer. Nothing
// here waits for anybody: the keeper polls the two descriptors and calls go_on(). A client that
// says nothing, or nonsense, or goes away loses its visit and what was made for it, and nobody else
// notices; but what was there before, and is started again for it, is not lost.
class Visit {
 public:
  // What the keeper has for all of its clients.
  struct House {
    storage::Home* home = nullptr;
    storage::OpenState* rows = nullptr;
    const OwnScope* scope = nullptr;
    WarmPool* warm = nullptr;
    KeptWatches* watches = nullptr;
    sandbox::FindWalls find_walls = nullptr;
  };
  Visit(const House& house, UniqueFd client);

  [[nodiscard]] int client_fd() const { return client_.get(); }
  // -1 when nothing is expected of a guest.
  [[nodiscard]] int guest_fd() const;
  // Milliseconds until go_on() is due without an event; nothing: never.
  [[nodiscard]] std::optional<int> time_left() const;
  [[nodiscard]] bool over() const { return stage_ == Stage::kOver; }
  // How many sandboxes it wants to be kept warm, as long as it is there.
  [[nodiscard]] std::size_t wanted_warm() const { return stage_ == Stage::kHolding ? warm_ : 0; }
  [[nodiscard]] bool holds() const { return stage_ == Stage::kHolding; }
  // It takes them itself.
  [[nodiscard]] bool borrows() const { return holds() && borrows_; }
  void lend(const Offer& offer);
  // The ids of those that it has taken since the last call.
  std::vector<std::string> taken() { return std::exchange(taken_, {}); }
  // It waits for a sandbox.
  [[nodiscard]] bool waits() const {
    return stage_ == Stage::kAsking || stage_ == Stage::kBuilding;
  }
  // Tells it the ids of those that there are.
  void tell_warm();

  // Returns a sandbox when one was finished: it is the caller's from then on.
  std::optional<Creation::Finished> go_on(short client_events, short guest_events);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage {
    kAsking,    // its request is not complete
    kBuilding,  // its sandbox is not ready
    kAnswered,  // it has not said that it got the id
    kHolding,   // it is told what is kept warm, until it goes
    kOver,
  };

  void hear();
  void hear_taken();
  void begin();
  void tend_watch(WatchWish wish);
  std::optional<Creation::Finished> build();
  void confirm();
  bool send(const Result<std::string>& id);
  void answer(const Result<std::string>& id);
  void end();

  House house_;
  UniqueFd client_;
  Stage stage_ = Stage::kAsking;
  Clock::time_point deadline_;
  std::string heard_;
  std::vector<UniqueFd> descriptors_;  // that came with it
  std::string id_;
  CreateRequest::Origin origin_ = CreateRequest::Origin::kNew;
  CreateRequest::From from_ = CreateRequest::From::kNothing;
  std::optional<Creation> creation_;
  std::size_t warm_ = 0;
  bool borrows_ = false;
  std::vector<std::string> taken_;
  std::set<std::string> told_;  // ids
};

}  // namespace carrel::native
