#include "backends/native/keeper_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <vector>

#include "backends/native/remains.h"
#include "backends/native/warm_supply.h"
#include "base/unix_socket.h"
#include "sandbox/guest_stream.h"
#include "storage/background.h"
#include "storage/box.h"

namespace carrel::native {

namespace {

constexpr int kAnswerMs = 60'000;
constexpr int kGreetMs = 2000;
constexpr const char* kKeeper = "keeper";

Status send_message(int socket, const std::string& text, std::vector<int> descriptors) {
  const std::string data = frame_message(text);
  std::string_view rest = data;
  while (!rest.empty()) {
    ssize_t n = send_with(socket, rest, descriptors, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return Error{Code::kGone, errno, "the keeper ended", "try again"};
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
    descriptors.clear();
  }
  return {};
}

Status read_exactly(int socket, char* out, std::size_t size) {
  while (size > 0) {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, kAnswerMs) == 0) {
      return Error{Code::kTimeout, 0, "the keeper does not answer", {}};
    }
    ssize_t n = ::read(socket, out, size);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return Error{Code::kGone, 0, "the keeper ended", "try again"};
    }
    out += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> receive_text(int socket, std::uint32_t size) {
  if (size > kLargestMessage) {
    return Error{Code::kInvalid, 0, "the keeper's answer is too large", {}};
  }
  std::string text(size, '\0');
  CARREL_TRY(read_exactly(socket, text.data(), text.size()));
  return text;
}

Result<std::string> receive_message(int socket) {
  std::uint32_t size = 0;
  CARREL_TRY(read_exactly(socket, reinterpret_cast<char*>(&size), sizeof size));
  return receive_text(socket, size);
}

// The descriptors come with the first bytes.
Result<std::string> receive_with_descriptors(int socket, std::vector<UniqueFd>& descriptors) {
  std::uint32_t size = 0;
  const ssize_t n =
      receive_with(socket, {reinterpret_cast<char*>(&size), sizeof size}, descriptors, MSG_WAITALL);
  if (n != static_cast<ssize_t>(sizeof size)) {
    return Error{Code::kGone, 0, "the keeper ended", {}};
  }
  return receive_text(socket, size);
}

// After the death of the keeper that was asked: whether it had finished, which its record says.
// Waits until the sandbox is reached or gone.
bool was_finished(storage::Home& home, const std::string& id) {
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    auto record = storage::read_record(home, id);
    if (record.ok()) {
      if (auto socket = storage::connect_box(home, record.value()); socket.ok()) {
        sandbox::GuestStream stream(std::move(socket.value()));
        if (stream.greet(id, kGreetMs).ok()) {
          return true;
        }
      }
    }
    sweep_boxes(home);
    if (auto lock = storage::lock_box(home, id, 0);
        !lock.ok() && lock.error().code == Code::kNotFound) {
      return false;
    }
    ::usleep(10'000);
  }
  return false;
}

Result<std::string> ask_keeper(const storage::Home& home, const CreateRequest& request) {
  CARREL_ASSIGN(UniqueFd socket, storage::reach_background(home, kKeeper));
  std::vector<int> descriptors;
  descriptors.reserve(request.trees.size());
  for (const GivenTree& tree : request.trees) {
    descriptors.push_back(tree.source.get());
  }
  CARREL_TRY(send_message(socket.get(), encode_create(request), std::move(descriptors)));
  CARREL_ASSIGN(std::string text, receive_message(socket.get()));
  auto answer = decode_answer(text);
  if (answer.ok()) {
    // It is stored and runs, whether or not the keeper still hears this.
    (void)::send(socket.get(), &kTaken, 1, MSG_NOSIGNAL);
  }
  return answer;
}

}  // namespace

Result<UniqueFd> lock_keeper(const storage::Home& home) {
  return storage::lock_background(home, kKeeper);
}

bool keeper_is_alive(const storage::Home& home) {
  return storage::background_is_alive(home, kKeeper);
}

Result<UniqueFd> hold_warm(const storage::Home& home, const KeepWarm& wish) {
  CARREL_ASSIGN(UniqueFd socket, storage::reach_background(home, kKeeper));
  CARREL_TRY(send_message(socket.get(), encode_keep_warm(wish), {}));
  return socket;
}

Result<WarmNews> hear_warm(int keeper) {
  std::vector<UniqueFd> descriptors;
  CARREL_ASSIGN(const std::string text, receive_with_descriptors(keeper, descriptors));
  CARREL_ASSIGN(std::optional<Offer> offer, decode_offer(text, std::move(descriptors)));
  if (offer.has_value()) {
    return WarmNews{{}, std::move(offer)};
  }
  CARREL_ASSIGN(std::string id, decode_answer(text));
  return WarmNews{std::move(id), {}};
}

void keep_watch(const storage::Home& home, const std::string& id, storage::KeptWatch watch) {
  const auto socket = storage::connect_background(home, kKeeper);
  const int events = watch.events.get();
  if (socket.ok()) {
    (void)send_message(socket.value().get(),
                       encode_watch({WatchWish::Kind::kKeep, id, std::move(watch)}), {events});
  }
}

std::optional<storage::KeptWatch> take_watch(const storage::Home& home, const std::string& id) {
  const auto socket = storage::connect_background(home, kKeeper);
  if (!socket.ok() ||
      !send_message(socket.value().get(), encode_watch({WatchWish::Kind::kTake, id, {}}), {})
           .ok()) {
    return std::nullopt;
  }
  std::vector<UniqueFd> descriptors;
  const auto text = receive_with_descriptors(socket.value().get(), descriptors);
  auto wish = text.ok() ? decode_watch(text.value(), descriptors) : std::nullopt;
  return wish.has_value() && wish->watch.events.valid() ? std::optional(std::move(wish->watch))
                                                        : std::nullopt;
}

namespace {

// One that is warm, if there is one that may do.
std::optional<WarmSupply::Ready> take_warm(const CreateRequest& request, WarmSupply* supply) {
  // In a group of its own, or behind other walls, it can only be a new one.
  const bool usual = request.origin == CreateRequest::Origin::kNew &&
                     request.spec.cgroup_parent.empty() &&
                     request.spec.backend == policy::Backend::kNative;
  return supply != nullptr && usual ? supply->take(request.spec) : std::nullopt;
}

Result<CreateRequest> copy_of(const CreateRequest& request) {
  CreateRequest copy;
  copy.id = request.id;
  copy.origin = request.origin;
  copy.from = request.from;
  copy.name = request.name;
  copy.spec = request.spec;
  copy.lease_ms = request.lease_ms;
  CARREL_ASSIGN(copy.trees, duplicate(request.trees));
  return copy;
}

}  // namespace

Result<std::string> create_sandbox(storage::Home& home, CreateRequest request,
                                   const IdChosen& chosen, WarmSupply* supply, MadeHere* here) {
  constexpr int kKeepers = 10;
  Result<std::string> answer = Error{};
  WarmSupply* next = supply;
  for (int keepers = 0; keepers < kKeepers; ++keepers) {
    std::optional<WarmSupply::Ready> warm(take_warm(request, next));
    if (request.origin == CreateRequest::Origin::kNew) {
      next = nullptr;  // what went wrong with one may go wrong with the others
      request.from = warm.has_value() ? CreateRequest::From::kWarm : CreateRequest::From::kNothing;
      request.id = warm.has_value() ? warm->id : storage::make_id();
    }
    if (Status known = chosen ? chosen(request.id) : Status(); !known.ok()) {
      if (warm.has_value()) {
        supply->put_back(std::move(*warm));
      }
      return known.error();
    }
    if (warm.has_value() && warm->box.has_value()) {
      CARREL_ASSIGN(CreateRequest copy, copy_of(request));
      auto made = supply->finish(std::move(*warm->box), std::move(copy));
      if (made.ok()) {
        supply->note(WarmSupply::Outcome::kHit);
        if (here != nullptr) {
          here->finished.emplace(std::move(made.value()));
        }
        return request.id;
      }
      // Whether it can be had at all, and why not, a new one tells.
      continue;
    }
    answer = ask_keeper(home, request);
    if (answer.ok() && supply != nullptr) {
      supply->note(warm.has_value() ? WarmSupply::Outcome::kHit : WarmSupply::Outcome::kMiss);
    }
    const bool cold = warm.has_value() && !answer.ok() && answer.error().code == Code::kUnavailable;
    if (answer.ok() || (answer.error().code != Code::kGone && !cold)) {
      return answer;
    }
    if (!cold && was_finished(home, request.id)) {
      return request.id;
    }
  }
  return answer;
}

}  // namespace carrel::native
