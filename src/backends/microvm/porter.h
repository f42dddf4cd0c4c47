#pragma once

#include <chrono>
#include <vector>

#include "base/unique_fd.h"

namespace carrel::microvm {

// Carries connections between the host and a machine, over its serial line.
struct PorterTerms {
  UniqueFd line;      // the VMM's serial line, which does not block
  UniqueFd stream;    // the maker's
  UniqueFd listener;  // the box's socket; not valid: there are no other clients
  UniqueFd network;   // where the egress process asks; not valid: nothing leaves the machine
  UniqueFd vmm;       // pidfds: when one of them has ended, everything has
  UniqueFd librarian;
  UniqueFd clerk;  // not valid: there is none
  // To the clerk, by the numbers of the trees. Each is given to the machine once.
  std::vector<UniqueFd> trees;
  std::chrono::milliseconds boot{};  // how long the machine may take to say that it is there
};

// Why it ended: kEnded is what happens to every sandbox at last.
enum class PorterEnd { kEnded, kNeverBegan, kTooSlow, kBroken };
PorterEnd carry(PorterTerms terms);

}  // namespace carrel::microvm
