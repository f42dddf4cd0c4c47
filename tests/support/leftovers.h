#pragma once

#include <set>
#include <string>
#include <vector>

#include "support/host.h"
#include "support/process.h"

namespace carrel::test {

// What a sandbox could leave on the host, of the place of this test: processes below the test,
// control groups of the two installations, files in CARREL_HOME/run and TMPDIR, mounts. The keeper
// of an installation is no leftover, nor is an empty group that waits for the next one-shot.
class Leftovers {
 public:
  static Leftovers snapshot();

  // What is here and was not there, one line each; empty: nothing is left.
  [[nodiscard]] std::string since(const Leftovers& before) const;

 private:
  std::set<std::string> found_;
};

// The processes below the test without those that belong to an installation: keepers, their
// nurseries and egress processes leave by themselves.
std::vector<HostProcess> other_than_keepers();

// Empty as soon as nothing is left that was not there in `before`; after two seconds the list.
std::string left_since(const Leftovers& before);

}  // namespace carrel::test
