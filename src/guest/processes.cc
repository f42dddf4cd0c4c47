#include "guest/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string_view>

#include "guest/proc.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

constexpr std::uint64_t kTicksPerSecond = 100;  // USER_HZ

// Field `wanted` (3 is the first after the name) of a stat line. The name can hold anything, so
// counting starts after the last parenthesis.
bool stat_field(std::string_view line, unsigned wanted, std::uint64_t& value) {
  std::size_t at = line.rfind(')');
  if (at == std::string_view::npos) {
    return false;
  }
  line.remove_prefix(at + 1);
  for (unsigned field = 3; !line.empty(); ++field) {
    line.remove_prefix(1);
    std::size_t end = line.find(' ');
    if (field == wanted) {
      return to_number(line.substr(0, end), value);
    }
    if (end == std::string_view::npos) {
      return false;
    }
    line.remove_prefix(end);
  }
  return false;
}

bool look_at(pid_t pid, ProcessRow& row) {
  char buffer[1024];
  std::string_view line(buffer, read_proc(pid, "stat", buffer, sizeof buffer));
  std::uint64_t parent = 0;
  row.pid = pid;
  if (!stat_field(line, 4, parent) || !stat_field(line, 22, row.start)) {
    return false;
  }
  row.parent = static_cast<pid_t>(parent);
  row.state = line[line.rfind(')') + 2];
  // A process whose first thread has ended looks dead, too, while its other threads run on.
  std::uint64_t threads = 0;
  if (row.state == 'Z' && stat_field(line, 20, threads) && threads > 1) {
    row.state = 'S';
  }
  return true;
}

// How a process takes a stop. kWaits: each thread of it stands or is in a sleep that no signal
// ends.
enum class Posture { kStands, kWaits, kRuns };

// A group stops thread by thread.
Posture posture(pid_t pid) {
  Posture worst = Posture::kStands;
  each_thread(pid, [&](pid_t thread) {
    char buffer[1024];
    Text<64> name;
    name.add("task/").add_number(static_cast<std::uint64_t>(thread)).add("/stat");
    std::string_view line(buffer, read_proc(pid, name.c_str(), buffer, sizeof buffer));
    std::size_t at = line.rfind(')');
    char state = at == std::string_view::npos || at + 2 >= line.size() ? 'X' : line[at + 2];
    if (state == 'D' && worst == Posture::kStands) {
      worst = Posture::kWaits;
    } else if (state != 'D' && state != 'T' && state != 't' && state != 'Z' && state != 'X') {
      worst = Posture::kRuns;
    }
  });
  return worst;
}

// The signals in a line of /proc/PID/status, hexadecimal digits after its name.
std::uint64_t signals_of(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) {
    return 0;
  }
  status.remove_prefix(at + name.size());
  std::uint64_t signals = 0;
  for (char digit : status) {
    const bool letter = digit >= 'a' && digit <= 'f';
    if (!letter && (digit < '0' || digit > '9')) {
      break;
    }
    signals = signals << 4 | static_cast<std::uint64_t>(letter ? digit - 'a' + 10 : digit - '0');
  }
  return signals;
}

constexpr std::uint64_t bit_of(int signal) { return 1ULL << (signal - 1); }

// Whether somebody stopped it who does not stand yet: the signal is pending until the process has
// a processor, which takes a while on a busy host. The stops of a terminal are not among them: the
// kernel takes those back where nobody is left to continue the process.
bool is_about_to_stop(pid_t pid) {
  char buffer[4096];
  const std::string_view status(buffer, read_proc(pid, "status", buffer, sizeof buffer));
  const std::uint64_t pending =
      signals_of(status, "\nSigPnd:\t") | signals_of(status, "\nShdPnd:\t");
  return (pending & bit_of(SIGSTOP)) != 0;
}

bool is_among(const StoppedBefore& before, pid_t pid) {
  for (std::size_t i = 0; i < before.count; ++i) {
    if (before.pids[i] == pid) {
      return true;
    }
  }
  return false;
}

// Lets the children of processes that wait go on. One that waits for a child that shares its memory
// (vfork) cannot be stopped before that child executes a program or ends, and a child that was
// stopped does neither.
void continue_children_of(const pid_t* waiting, std::size_t count, const StoppedBefore& before) {
  each_pid([&](pid_t pid) {
    ProcessRow row;
    if (!look_at(pid, row) || is_among(before, pid)) {
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (row.parent == waiting[i]) {
        kill(pid, SIGCONT);
      }
    }
  });
}

const ProcessRow* find(const ProcessRow* rows, std::size_t count, pid_t pid) {
  for (std::size_t i = 0; i < count; ++i) {
    if (rows[i].pid == pid) {
      return &rows[i];
    }
  }
  return nullptr;
}

// Whether the chain of parents from `row` reaches `ancestor` or `shell` through processes that all
// started since then.
bool is_due(const ProcessRow* rows, std::size_t count, const ProcessRow& row, pid_t ancestor,
            pid_t shell, std::uint64_t since) {
  if (row.pid == shell) {
    return true;
  }
  const ProcessRow* at = &row;
  for (int depth = 0; at != nullptr && depth < 4096; ++depth) {
    if (at->start < since) {
      return false;
    }
    if (at->parent == ancestor || (shell != 0 && at->parent == shell)) {
      return true;
    }
    at = find(rows, count, at->parent);
  }
  return false;
}

// Whether no one of `minded` is on the chain of parents, up to `lost`.
bool is_unminded(const ProcessRow* rows, std::size_t count, const ProcessRow& row,
                 const pid_t* minded, std::size_t minded_count, pid_t lost) {
  const ProcessRow* at = &row;
  for (int depth = 0; at != nullptr && at->pid != lost && depth < 4096; ++depth) {
    for (std::size_t i = 0; i < minded_count; ++i) {
      if (at->pid == minded[i]) {
        return false;
      }
    }
    at = at->parent <= 1 ? nullptr : find(rows, count, at->parent);
  }
  return true;
}

// Each look stops what it finds before it ends it, so that nothing forks between two looks; the
// bound is for a workload that is faster than that, which its process limit then ends.
template <typename IsDue>
void end_each(IsDue is_due_now) {
  static ProcessRow rows[kMaxProcessRows];
  for (int round = 0; round < 200; ++round) {
    std::size_t count = list_processes(rows, kMaxProcessRows);
    bool any = false;
    for (int signal : {SIGSTOP, SIGKILL}) {
      for (std::size_t i = 0; i < count; ++i) {
        if (rows[i].pid > 1 && rows[i].state != 'Z' && is_due_now(rows, count, rows[i])) {
          kill(rows[i].pid, signal);
          any = true;
        }
      }
    }
    if (!any) {
      return;
    }
    struct timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

std::size_t list_processes(ProcessRow* rows, std::size_t capacity) {
  std::size_t count = 0;
  each_pid([&](pid_t pid) {
    if (count < capacity && look_at(pid, rows[count])) {
      ++count;
    }
  });
  return count;
}

void end_descendants(pid_t ancestor, pid_t shell, std::uint64_t since) {
  end_each([=](const ProcessRow* rows, std::size_t count, const ProcessRow& row) {
    return row.pid != ancestor && is_due(rows, count, row, ancestor, shell, since);
  });
}

void end_all_but(const pid_t* minded, std::size_t count, pid_t lost) {
  end_each([=](const ProcessRow* rows, std::size_t rows_count, const ProcessRow& row) {
    return is_unminded(rows, rows_count, row, minded, count, lost);
  });
}

void continue_stopped_children() {
  constexpr int kMost = 64;
  for (int i = 0; i < kMost; ++i) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) != 0 || info.si_pid == 0) {
      return;
    }
    kill(info.si_pid, SIGCONT);
  }
}

bool stop_everybody(StoppedBefore& before) {
  before.count = 0;
  each_pid([&](pid_t pid) {
    if (pid > 1 && before.count < StoppedBefore::kMost &&
        (is_stopped(pid) || is_about_to_stop(pid))) {
      before.pids[before.count++] = pid;
    }
  });
  constexpr std::uint64_t kLongestUs = 3'000'000;
  constexpr std::uint64_t kPauseUs = 1'000;
  constexpr std::uint64_t kLongestPauseUs = 64'000;
  const std::uint64_t begun = now_us();
  std::uint64_t pause_us = kPauseUs;
  do {
    pid_t waiting[StoppedBefore::kMost];
    std::size_t waiting_count = 0;
    bool all = true;
    kill(-1, SIGSTOP);
    each_pid([&](pid_t pid) {
      const Posture now = pid <= 1 ? Posture::kStands : posture(pid);
      all = all && now == Posture::kStands;
      if (now == Posture::kWaits && waiting_count < StoppedBefore::kMost) {
        waiting[waiting_count++] = pid;
      }
    });
    if (all) {
      return true;
    }
    if (waiting_count > 0) {  // the children need a while to get on, the longer the busier it is
      continue_children_of(waiting, waiting_count, before);
      pause_us = pause_us < kLongestPauseUs ? pause_us * 2 : pause_us;
    }
    struct timespec pause{0, static_cast<long>(pause_us * 1'000)};
    nanosleep(&pause, nullptr);
  } while (now_us() - begun < kLongestUs);
  return false;
}

void continue_everybody(const StoppedBefore& before) {
  each_pid([&](pid_t pid) {
    if (pid > 1 && !is_among(before, pid)) {
      kill(pid, SIGCONT);
    }
  });
}

std::uint64_t newest_process(int loadavg) {
  char buffer[128];
  ssize_t n = loadavg < 0 ? -1 : pread(loadavg, buffer, sizeof buffer, 0);
  std::string_view line(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  std::uint64_t pid = 0;
  if (!line.ends_with('\n')) {
    return 0;
  }
  line.remove_suffix(1);
  line.remove_prefix(line.rfind(' ') + 1);
  return to_number(line, pid) ? pid : 0;
}

bool any_between(std::uint64_t after, std::uint64_t last) {
  for (std::uint64_t pid = after + 1; pid <= last; ++pid) {
    if (exists(static_cast<pid_t>(pid))) {
      return true;
    }
  }
  return false;
}

pid_t find_child(pid_t first, pid_t second) {
  pid_t child = 0;
  each_pid([&](pid_t pid) {
    ProcessRow row;
    if (child == 0 && pid != first && look_at(pid, row) && row.state != 'Z' && row.parent != 0 &&
        (row.parent == first || row.parent == second)) {
      child = pid;
    }
  });
  return child;
}

bool exists(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

bool is_stopped(pid_t pid) {
  ProcessRow row;
  return look_at(pid, row) && row.state == 'T';
}

bool is_dying(pid_t pid) {
  constexpr unsigned kFlags = 9;
  constexpr unsigned kPending = 31;
  constexpr std::uint64_t kExiting = 4;  // PF_EXITING
  char buffer[1024];
  std::string_view line(buffer, read_proc(pid, "stat", buffer, sizeof buffer));
  std::uint64_t flags = 0;
  std::uint64_t pending = 0;
  return !stat_field(line, kFlags, flags) || !stat_field(line, kPending, pending) ||
         (flags & kExiting) != 0 || (pending & (1ULL << (SIGKILL - 1))) != 0;
}

std::uint64_t process_start(pid_t pid) {
  ProcessRow row;
  return look_at(pid, row) ? row.start : 0;
}

std::uint64_t ticks_now() {
  struct timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kTicksPerSecond +
         static_cast<std::uint64_t>(now.tv_nsec) / (1'000'000'000 / kTicksPerSecond);
}

}  // namespace carrel::guest
