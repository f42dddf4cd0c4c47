#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "backends/docker/family.h"

namespace carrel::docker {

// Whether an engine that does not answer is at work. Its interface does not tell a slow disk from a
// call that hangs; the host does: whoever works for an engine uses a processor or waits for a disk.
// Of several engines it is that of the socket; one whose socket a service manager opened
// cannot be told from others.
class Working {
 public:
  // Those of root and of the owner of the engine's socket; one process
  // that is known by its number counts as well.
  Working(std::string socket, uid_t owner) : socket_(std::move(socket)), owner_(owner) {}
  void count(pid_t process) { known_ = process; }

  // Whether something was done lately; the first look sees who waits for a disk.
  bool look();
  // How long nothing has been done; to be asked several times in a second.
  std::chrono::milliseconds quiet();

 private:
  [[nodiscard]] bool counts(const HostProcesses& all, pid_t process) const;
  [[nodiscard]] bool is_stopped() const;

  std::string socket_;
  uid_t owner_;
  pid_t known_ = 0;
  std::uint64_t asked_ = ticks_now();
  std::optional<pid_t> engine_;  // who listens at the socket
  std::uint64_t used_ = 0;       // nanoseconds of processors, at the time of since_
  std::chrono::steady_clock::time_point since_;
  bool looked_ = false;
  std::chrono::steady_clock::time_point busy_ = std::chrono::steady_clock::now();
};

// How long an engine may be quiet before what was asked of it counts as lost.
inline constexpr std::chrono::milliseconds kQuiet{1'200};

}  // namespace carrel::docker
