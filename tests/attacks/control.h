#pragma once

#include <string>
#include <utility>
#include <vector>

namespace carrel::test {

// A place without protection, in which a probe must succeed: otherwise its failure in a sandbox
// proves nothing. It is a file tree of its own in namespaces of its own, with every capability over
// them and none over the host: its users are ids that own nothing outside. What would reach the
// host even from there is only pretended to work.
struct World {
  enum class Proc { kNone, kOwn, kOfTheHost };
  enum class Devices { kNone, kOfTheHost };

  std::vector<std::pair<std::string, std::string>> files = {};  // path and text
  Proc proc = Proc::kOwn;
  Devices devices = Devices::kNone;
  std::vector<long> pretend = {};  // system calls that do nothing and return 0
  std::vector<std::string> arguments = {};
  std::vector<int> descriptors = {};  // opened for the probe under these numbers
};

struct ControlRun {
  int status = -1;
  std::string out;
};

// Runs the probe in that world.
ControlRun run_control(const std::string& probe, const World& world);

// Where the program with the probes is, and the inode of this process's mount namespace.
std::string probe_program();
std::string mount_namespace();
// The value of "verdict" in a probe's line; empty if there is no line.
std::string verdict_of(const std::string& out);

}  // namespace carrel::test
