#pragma once

#include <chrono>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/trunk.h"

namespace carrel::sandbox {

// Carries connections between the host and a guest that only a line of bytes leads to: one in a
// machine of its own. To the host it is the sandbox.
struct PorterTerms {
  UniqueFd line;                       // which does not block
  protocol::Trunk::LineReader reader;  // how it is read
  UniqueFd stream;                     // the maker's
  UniqueFd listener;                   // the box's socket; not valid: there are no other clients
  UniqueFd network;  // where the egress process asks; not valid: nothing leaves the machine
  // When one of them can be read, everything has ended: pidfds, four at most.
  std::vector<UniqueFd> ends;
  // To whoever keeps the trees, by their numbers. Each is given to the machine once.
  std::vector<UniqueFd> trees;
  std::chrono::milliseconds boot{};  // how long the guest's side may take to say that it is there
};

// Why it ended: kEnded is what happens to every sandbox at last.
enum class PorterEnd { kEnded, kNeverBegan, kTooSlow, kBroken };
PorterEnd carry(PorterTerms terms);

}  // namespace carrel::sandbox
