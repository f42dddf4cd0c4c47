#include "backends/native/keeper_visit.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backends/native/remains.h"
#include "base/unix_socket.h"
#include "protocol/boot.h"
#include "storage/box.h"

namespace carrel::native {

namespace {

constexpr std::chrono::seconds kAskingTime{5};
constexpr std::chrono::seconds kBuildingTime{30};

}  // namespace

Visit::Visit(const House& house, UniqueFd client)
    : house_(house), client_(std::move(client)), deadline_(Clock::now() + kAskingTime) {}

int Visit::guest_fd() const {
  return stage_ == Stage::kBuilding && creation_.has_value() ? creation_->stream_fd() : -1;
}

std::optional<int> Visit::time_left() const {
  if (stage_ == Stage::kAnswered || stage_ == Stage::kHolding) {
    return std::nullopt;  // it may be stopped for as long as it likes
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(0, left));
}

std::optional<Creation::Finished> Visit::go_on(short client_events, short guest_events) {
  // While others were served, it may have asked in time and not been heard.
  const bool overdue = stage_ == Stage::kAsking && Clock::now() >= deadline_;
  if (client_events != 0 || overdue) {
    if (stage_ == Stage::kAsking) {
      hear();
    } else if (stage_ == Stage::kAnswered) {
      confirm();
    } else if (borrows()) {
      hear_taken();
    } else if (stage_ == Stage::kBuilding && origin_ == CreateRequest::Origin::kStopped) {
      client_.reset();  // others may wait for it by now
    } else {
      // It went away, or talks when it should listen.
      end();
    }
  }
  if (stage_ == Stage::kBuilding && guest_events != 0) {
    return build();
  }
  if ((stage_ == Stage::kAsking || stage_ == Stage::kBuilding) && Clock::now() >= deadline_) {
    const bool building = stage_ == Stage::kBuilding;
    creation_.reset();
    answer(Error{Code::kTimeout,
                 0,
                 building ? "Failed to create sandbox: it did not become ready in time"
                          : "the keeper was asked nothing",
                 {}});
  }
  return std::nullopt;
}

void Visit::hear() {
  std::array<char, 16384> piece;
  for (;;) {
    ssize_t n = receive_with(client_.get(), piece, descriptors_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      return;
    }
    if (n <= 0) {
      end();
      return;
    }
    heard_.append(piece.data(), static_cast<std::size_t>(n));
    std::uint32_t size = 0;
    if (heard_.size() < sizeof size) {
      continue;
    }
    std::memcpy(&size, heard_.data(), sizeof size);
    if (size > kLargestMessage || heard_.size() > sizeof size + size ||
        descriptors_.size() > protocol::kMaxTrees) {
      answer(Error{Code::kInvalid, 0, "the request to the keeper is malformed", {}});
      return;
    }
    if (heard_.size() == sizeof size + size) {
      heard_.erase(0, sizeof size);
      begin();
      return;
    }
  }
}

void Visit::hear_taken() {
  std::array<char, 4096> piece;
  const ssize_t n = ::recv(client_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n <= 0) {
    end();
    return;
  }
  heard_.append(piece.data(), static_cast<std::size_t>(n));
  for (; heard_.size() >= protocol::kIdSize; heard_.erase(0, protocol::kIdSize)) {
    taken_.push_back(heard_.substr(0, protocol::kIdSize));
  }
}

void Visit::begin() {
  if (const auto wish = decode_keep_warm(heard_); wish.has_value()) {
    heard_ = {};
    warm_ = wish->count;
    borrows_ = !wish->place.empty() && wish->place == place_of_this_process();
    stage_ = Stage::kHolding;
    return;
  }
  if (auto wish = decode_watch(heard_, descriptors_); wish.has_value()) {
    tend_watch(std::move(*wish));
    end();
    return;
  }
  auto request = decode_create(heard_, std::exchange(descriptors_, {}));
  heard_ = {};
  if (!request.ok()) {
    answer(request.error());
    return;
  }
  id_ = request.value().id;
  origin_ = request.value().origin;
  from_ = request.value().from;
  const bool wants_warm = from_ == CreateRequest::From::kWarm;
  std::optional<WarmBox> warm = wants_warm ? house_.warm->take(id_) : std::nullopt;
  if (wants_warm && !warm.has_value()) {
    answer(not_warm());
    return;
  }
  const sandbox::Walls* const walls =
      house_.find_walls(request->spec.backend, request->spec.runtime);
  auto begun = Creation::begin(*house_.home, *house_.rows, std::move(request.value()),
                               {walls, house_.scope, std::move(warm)});
  if (!begun.ok()) {
    answer(begun.error());
    return;
  }
  creation_.emplace(std::move(begun.value()));
  deadline_ = Clock::now() +
              (walls == nullptr ? std::chrono::milliseconds(kBuildingTime) : walls->patience());
  stage_ = Stage::kBuilding;
}

void Visit::tend_watch(WatchWish wish) {
  if (wish.kind == WatchWish::Kind::kKeep) {
    if (wish.watch.events.valid() && storage::read_record(*house_.home, wish.id).ok()) {
      house_.watches->keep(wish.id, std::move(wish.watch));
    }
    return;
  }
  auto kept = house_.watches->take(*house_.home, wish.id);
  if (kept.has_value()) {
    wish.watch = std::move(*kept);
  }
  const std::string data = frame_message(encode_watch(wish));
  const int events = wish.watch.events.get();
  (void)send_with(client_.get(), data, {&events, kept.has_value() ? 1U : 0U},
                  MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::optional<Creation::Finished> Visit::build() {
  auto made = creation_->finish();
  if (!made.ok()) {
    if (made.error().code != Code::kUnavailable) {
      creation_.reset();
      // Whether it can be had at all, and why not, a new one tells.
      answer(from_ == CreateRequest::From::kWarm ? not_warm() : made.error());
    }
    return std::nullopt;
  }
  creation_.reset();
  stage_ = Stage::kAnswered;
  answer(id_);
  return std::move(made.value());
}

void Visit::confirm() {
  char byte = 0;
  ssize_t n = ::recv(client_.get(), &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n == 1 && byte == kTaken) {
    id_.clear();
  }
  end();
}

void Visit::answer(const Result<std::string>& id) {
  Result<std::string> told = id;
  // To the client kGone means that the keeper died.
  if (!told.ok() && told.error().code == Code::kGone) {
    told.error().code = Code::kSystem;
    told.error().message = "Failed to create sandbox: its first process ended";
  }
  if (!send(told) || !told.ok()) {
    end();
  }
}

bool Visit::send(const Result<std::string>& id) {
  const std::string data = frame_message(encode_answer(id));
  // The buffer of the socket has room for it; who does not read has no use for it.
  return ::send(client_.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(data.size());
}

void Visit::lend(const Offer& offer) {
  const std::string data = frame_message(encode_offer(offer));
  const std::array<int, 4> descriptors = {offer.lock.get(), offer.listener.get(),
                                          offer.stream.get(), offer.process.get()};
  if (send_with(client_.get(), data, descriptors, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(data.size())) {
    end();
  }
}

void Visit::tell_warm() {
  std::set<std::string> there;
  for (const WarmBox& box : house_.warm->boxes()) {
    there.insert(box.id());
    if (!told_.contains(box.id()) && !send(box.id())) {
      end();
      return;
    }
  }
  told_ = std::move(there);
}

// What the client has not taken is nobody's, unless others know it from before.
void Visit::end() {
  const bool untaken =
      stage_ == Stage::kAnswered && !id_.empty() && origin_ == CreateRequest::Origin::kNew;
  creation_.reset();
  client_.reset();
  stage_ = Stage::kOver;
  if (!untaken) {
    return;
  }
  if (auto record = storage::read_record(*house_.home, id_); record.ok()) {
    (void)remove_sandbox(*house_.home, record.value(), 0,
                         "nobody took it: the command that made it ended");
  }
}

}  // namespace carrel::native
