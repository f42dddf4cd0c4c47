#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace carrel::docker {

// Whether an engine that does not answer is at work. Its interface does not tell a slow disk from a
// call that hangs; the host does: whoever works for an engine uses a processor or waits for a disk.
// That is looked up by the names of such programs, because a socket that a
// service manager opened does not tell whose it is.
class Working {
 public:
  // Those of root and of the owner of the engine's socket; one process
  // that is known by its number counts as well.
  explicit Working(uid_t owner) : owner_(owner) {}
  void count(pid_t process) { known_ = process; }

  // Whether something was done since work was seen last; the first look sees who waits for a disk.
  bool look();
  // How long nothing has been done; to be asked several times in a second.
  std::chrono::milliseconds quiet();

 private:
  bool counts(const std::string& process, pid_t parent) const;

  uid_t owner_;
  pid_t known_ = 0;
  std::uint64_t used_ = 0;  // nanoseconds of processors, when work was seen last
  bool looked_ = false;
  std::chrono::steady_clock::time_point busy_ = std::chrono::steady_clock::now();
};

// How long an engine may be quiet before what was asked of it counts as lost.
inline constexpr std::chrono::milliseconds kQuiet{1'200};

// Whether a program of that name does an engine's work, and whether what it starts does. Those that
// look after containers start the work of others.
bool works_for_engine(const std::string& name);
bool starts_helpers(const std::string& name);

// What the text of /proc/PID/stat or of one of its tasks says.
struct TaskState {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t ticks = 0;
};
TaskState parse_task(const std::string& text);

}  // namespace carrel::docker
