#include "sandbox/porter.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/unix_socket.h"
#include "protocol/outward.h"

namespace carrel::sandbox {

namespace {

using Clock = std::chrono::steady_clock;

// What came from the machine before its end reaches whoever waits for it.
void deliver(protocol::Trunk& trunk) {
  constexpr int kSteps = 250;
  constexpr int kStepMs = 20;
  unsigned ready = 0;
  for (int i = 0; i < kSteps && !trunk.has_delivered(); ++i) {
    if (!trunk.serve(nullptr, 0, ready, kStepMs)) {
      return;
    }
  }
}

// What a machine may reach. Everything else is closed at once.
class Reach {
 public:
  explicit Reach(PorterTerms& terms) : terms_(&terms) {}

  static int open(void* self, const protocol::TrunkLabel& label) {
    return static_cast<Reach*>(self)->find(label);
  }

  [[nodiscard]] int egress() const { return egress_.get(); }
  // Another egress process, which takes the place of one before.
  void meet() {
    const int fd = ::accept4(terms_->network.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      egress_.reset(fd);
      tell_ready();
    }
  }
  // It says nothing, so this is its end.
  void part() { egress_.reset(); }

 private:
  int find(const protocol::TrunkLabel& label) {
    switch (label.purpose) {
      case protocol::TrunkPurpose::kFiles: {
        const auto number = static_cast<unsigned char>(label.detail[0]);
        return number < terms_->trees.size() ? terms_->trees[number].release() : -1;
      }
      case protocol::TrunkPurpose::kConnection:
        return hand_over(label.detail);
      case protocol::TrunkPurpose::kNetwork:
        ready_ = true;
        tell_ready();
        return -1;
    }
    return -1;
  }

  // CRITICAL: without an egress process there is no connection.
  int hand_over(std::string_view outward) {
    std::array<int, 2> ends{};
    if (!egress_.valid() ||
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
      return -1;
    }
    UniqueFd own(ends[0]);
    const UniqueFd theirs(ends[1]);
    const std::array<int, 1> given = {theirs.get()};
    const ssize_t sent = send_with(egress_.get(), outward, given, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == static_cast<ssize_t>(outward.size()) ? own.release() : -1;
  }

  void tell_ready() {
    if (ready_ && egress_.valid()) {
      (void)send_with(egress_.get(), protocol::kOutwardReady, {}, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }

  PorterTerms* terms_;
  UniqueFd egress_;
  bool ready_ = false;
};

}  // namespace

PorterEnd carry(PorterTerms terms) {
  // Most of it is not touched unless there are that many connections.
  auto trunk = std::make_unique_for_overwrite<protocol::Trunk>();
  protocol::Trunk::Owner owner;
  Reach reach(terms);
  owner.reach = Reach::open;
  owner.self = &reach;
  trunk->begin(protocol::TrunkEnd::kHost, {terms.line.get(), terms.line.get(), terms.reader},
               terms.stream.release(), owner);
  const Clock::time_point late = Clock::now() + terms.boot;
  // poll() takes no notice of one that is not there.
  enum Other : unsigned { kListener, kNetwork, kEgress, kFirstEnd };
  constexpr std::size_t kMostEnds = 4;
  std::array<int, kFirstEnd + kMostEnds> others{};
  const std::size_t ends = std::min(terms.ends.size(), kMostEnds);
  for (std::size_t i = 0; i < ends; ++i) {
    others.at(kFirstEnd + i) = terms.ends[i].get();
  }
  for (;;) {
    int patience = -1;
    if (!trunk->heard_hello()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(late - Clock::now()).count();
      if (left <= 0) {
        return PorterEnd::kTooSlow;
      }
      patience = static_cast<int>(std::min<long>(left, 60'000));
    }
    unsigned ready = 0;
    others[kListener] = terms.listener.get();
    others[kNetwork] = terms.network.get();
    others[kEgress] = reach.egress();
    const bool open = trunk->serve(others.data(), kFirstEnd + ends, ready, patience);
    if (trunk->broken()) {
      return PorterEnd::kBroken;
    }
    if (!open || trunk->heard_gone() || ready >> kFirstEnd != 0) {
      deliver(*trunk);
      return trunk->heard_hello() ? PorterEnd::kEnded : PorterEnd::kNeverBegan;
    }
    if ((ready & 1U << kEgress) != 0) {
      reach.part();
    }
    if ((ready & 1U << kNetwork) != 0) {
      reach.meet();
    }
    if ((ready & 1U << kListener) != 0) {
      const int client =
          ::accept4(terms.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      UniqueFd connection(client);
      if (connection.valid() && trunk->carry(connection.get())) {
        (void)connection.release();
      }
    }
  }
}

}  // namespace carrel::sandbox
