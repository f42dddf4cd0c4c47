#include "backends/microvm/porter.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "protocol/trunk.h"

namespace carrel::microvm {

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

}  // namespace

PorterEnd carry(PorterTerms terms) {
  auto trunk = std::make_unique<protocol::Trunk>();
  trunk->begin(protocol::TrunkEnd::kHost, terms.line.get(), terms.stream.release(), {});
  const Clock::time_point late = Clock::now() + terms.boot;
  enum Other : unsigned { kVmm, kLibrarian, kListener };
  const std::array<int, 3> others = {terms.vmm.get(), terms.librarian.get(), terms.listener.get()};
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
    const bool open = trunk->serve(others.data(), terms.listener.valid() ? 3 : 2, ready, patience);
    if (trunk->broken()) {
      return PorterEnd::kBroken;
    }
    if (!open || trunk->heard_gone() || (ready & (1U << kVmm | 1U << kLibrarian)) != 0) {
      deliver(*trunk);
      return trunk->heard_hello() ? PorterEnd::kEnded : PorterEnd::kNeverBegan;
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

}  // namespace carrel::microvm
