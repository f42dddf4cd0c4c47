#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sandbox/porter.h"

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
  std::string terms;                 // what its first process is told
  // Of a machine that goes on from a snapshot: another VMM, which boots when it is told to.
  struct Spare {
    UniqueFd word;  // any byte; its end: it is not needed
    UniqueFd line;  // as above
    UniqueFd vmm;
  };
  Spare spare;
};

// Wakes the machine, and carries until its end.
using sandbox::PorterEnd;
PorterEnd carry(PorterTerms terms);

}  // namespace carrel::microvm
