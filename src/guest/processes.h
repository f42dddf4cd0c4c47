#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace carrel::guest {

// A look at the sandbox's process table through /proc. It is what the workload let it become, so
// it is used for finding what to end, never for trust.
struct ProcessRow {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start = 0;  // clock ticks since boot
  char state = '\0';        // as in /proc: T is stopped, Z has ended; zero keeps tables in .bss
};

inline constexpr std::size_t kMaxProcessRows = 8192;

// Fills `rows` and returns how many there are.
std::size_t list_processes(ProcessRow* rows, std::size_t capacity);

// Ends every descendant of `ancestor` that started at `since` or later, and `shell` with it (0:
// there is none). Older ones and what they started are left alone; `ancestor` itself stays. Repeats
// until a look finds nothing to end.
void end_descendants(pid_t ancestor, pid_t shell, std::uint64_t since);

// Ends every process but the guest and those that are, or descend from, one of `minded`. The
// children of `lost`, a minder that is dying, are ended with the rest.
void end_all_but(const pid_t* minded, std::size_t count, pid_t lost);

// Lets this process's children go on that somebody stopped. They can be stopped again and again:
// whoever does it gets no more than one answer for each SIGCHLD, and a loop has an end.
void continue_stopped_children();

// Processes that were stopped by somebody else before everybody was, or are about to stop.
struct StoppedBefore {
  static constexpr std::size_t kMost = 64;  // of more, the rest goes on with the others
  pid_t pids[kMost] = {};
  std::size_t count = 0;
};
// Stops every process but the guest, with all its threads, and waits until they stand; false when
// one does not within three seconds.
bool stop_everybody(StoppedBefore& before);
void continue_everybody(const StoppedBefore& before);

// The newest process of the sandbox, ended or not, from an open /proc/loadavg; 0 when it cannot be
// told.
std::uint64_t newest_process(int loadavg);

// Whether there is such a process, running or ended and not yet reaped.
bool exists(pid_t pid);
// Whether there is any with an id after the one and up to the other.
bool any_between(std::uint64_t after, std::uint64_t last);

// A running child of either that is not `first` itself; 0 when there is none.
pid_t find_child(pid_t first, pid_t second);

// Whether somebody stopped it with a signal.
bool is_stopped(pid_t pid);

// Whether it is gone, or was killed and has not noticed yet.
bool is_dying(pid_t pid);

// The start time of a process, 0 when it is gone.
std::uint64_t process_start(pid_t pid);

// A start time that lies after every process that exists now.
std::uint64_t ticks_now();

}  // namespace carrel::guest
