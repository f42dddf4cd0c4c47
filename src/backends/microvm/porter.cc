#include "backends/microvm/porter.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "backends/microvm/hall.h"
#include "backends/microvm/waking.h"
#include "base/files.h"

namespace carrel::microvm {

namespace {

using Clock = std::chrono::steady_clock;

// Wakes the machine: the one of the snapshot or, if that does not come to life, the spare one.
Woken begin(PorterTerms& terms) {
  constexpr int kShareOfRestoring = 3;
  if (terms.spare.word.valid()) {
    const Woken woken =
        wake({terms.line.get(), terms.vmm.get(), Clock::now() + terms.boot / kShareOfRestoring},
             terms.terms);
    PorterTerms::Spare spare = std::move(terms.spare);
    if (woken == Woken::kYes) {
      return woken;
    }
    (void)write_all(STDERR_FILENO, std::string(kNotRestored) + "\n");
    terms.line = std::move(spare.line);
    terms.vmm = std::move(spare.vmm);
    if (!write_all(spare.word.get(), "g").ok()) {
      return Woken::kEnded;
    }
  }
  return wake({terms.line.get(), terms.vmm.get(), Clock::now() + terms.boot}, terms.terms);
}

}  // namespace

PorterEnd carry(PorterTerms terms) {
  switch (begin(terms)) {
    case Woken::kYes:
      break;
    case Woken::kEnded:
      return PorterEnd::kNeverBegan;
    case Woken::kLate:
      return PorterEnd::kTooSlow;
  }
  sandbox::PorterTerms all;
  all.line = std::move(terms.line);
  all.stream = std::move(terms.stream);
  all.listener = std::move(terms.listener);
  all.network = std::move(terms.network);
  all.trees = std::move(terms.trees);
  all.boot = terms.boot;
  for (UniqueFd* end : {&terms.vmm, &terms.librarian, &terms.clerk}) {
    all.ends.push_back(std::move(*end));
  }
  return sandbox::carry(std::move(all));
}

}  // namespace carrel::microvm
