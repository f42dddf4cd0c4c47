#pragma once

#include <string>

namespace carrel::storage {

// Evidence that nothing in a workspace with a file system of its own has changed: what was written
// to its device, which grows with every change as soon as that is on the device. A cache: where the
// host does not count, or the note is gone, the tree is walked.
class Quiet {
 public:
  // `place` is where the workspace has its locks and marks, `tree` is in its file system.
  Quiet(int place, int tree);

  // Whether the tree was what that snapshot says when this was made. Nobody has to stand still for
  // it: what is written meanwhile comes after it.
  [[nodiscard]] bool was(const std::string& snapshot) const;

  // Whether nothing was written since this was made, and nothing waits to be.
  [[nodiscard]] bool still() const;
  // The tree is what that snapshot says. Only if all of it was looked at between the making of this
  // and a still(), while nobody wrote to it.
  void note(const std::string& snapshot) const;

 private:
  int place_;
  int tree_;
  std::string device_;  // its directory in /sys; empty: nothing is counted
  std::string began_;   // what was written when this was made
};

}  // namespace carrel::storage
