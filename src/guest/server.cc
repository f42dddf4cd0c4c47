#include "guest/server.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/disk.h"
#include "guest/gvisor.h"
#include "guest/machine.h"
#include "guest/memory.h"
#include "guest/processes.h"
#include "guest/requests.h"
#include "guest/runtime.h"
#include "guest/services.h"
#include "guest/shell.h"
#include "guest/shell_outputs.h"
#include "guest/standstill.h"
#include "guest/wants.h"

namespace carrel::guest {

namespace {

using protocol::FrameHeader;
using protocol::Refusal;

constexpr std::uint64_t kMemoryWatchUs = 20'000;
constexpr std::uint64_t kIdleMemoryWatchUs = 200'000;

void adopt(Guest& guest, int fd) {
  for (std::uint32_t i = 0; i < kMaxClients; ++i) {
    if (!guest.clients[i].used()) {
      fcntl(fd, F_SETFL, O_NONBLOCK);
      guest.clients[i].open(fd);
      guest.poller.add(fd, EPOLLIN, Source::kClient, i);
      return;
    }
  }
  close(fd);
}

// The connection is over. Commands go on; a one-shot sandbox ends with that of its maker.
void drop(Guest& guest, std::uint32_t index) {
  // The maker leaves only after it has stored what it made; before that the sandbox is nobody's.
  if (index == 0 && (guest.one_shot() || !guest.released)) {
    _exit(0);
  }
  stop_following(guest, index, kEveryChannel);
  if (guest.freezer == index) {
    end_standstill(guest);
  }
  guest.poller.remove(guest.clients[index].fd());
  guest.clients[index].close();
}

void take_frames(Guest& guest, std::uint32_t index) {
  Client& client = guest.clients[index];
  FrameHeader header;
  std::string_view payload;
  bool broken = false;
  while (client.used() && client.next(header, payload, broken)) {
    if (!take_frame(guest, index, header, payload)) {
      refuse(guest, index, header.channel, Refusal::kBadRequest, 0, "malformed frame");
      client.flush();
      drop(guest, index);
      return;
    }
  }
  if (broken) {
    drop(guest, index);
  }
}

// Has the client's commands fill the room that there is now.
void pump_all(Guest& guest, std::uint32_t client) {
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    if (follows(guest, client, i)) {
      pump(guest, i);
    }
  }
}

void on_client(Guest& guest, std::uint32_t index, std::uint32_t events) {
  Client& client = guest.clients[index];
  if (!client.used()) {
    return;
  }
  if ((events & EPOLLOUT) != 0) {
    if (!client.flush()) {
      drop(guest, index);
      return;
    }
    pump_all(guest, index);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (!client.fill()) {
      drop(guest, index);
      return;
    }
    take_frames(guest, index);
  }
}

void reap(Guest& guest) {
  struct signalfd_siginfo info{};
  while (read(guest.signals, &info, sizeof info) > 0) {
  }
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    on_child_end(guest, pid, status);
    on_shell_orphan_end(guest, pid, status);
  }
  if (!guest.one_shot() && guest.freezer == kNone) {
    continue_stopped_children();  // the spawner, and minders that outlived theirs
  }
}

void let_in(Guest& guest) {
  const bool by_door = (guest.boot.flags & protocol::kBootDoor) != 0;
  int fd = by_door ? take_from_door(guest.listener)
                   : accept4(guest.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    adopt(guest, fd);
  } else if (by_door && fd == -EPIPE) {
    // Who stood for the sandbox on the host is gone, and with it the sandbox.
    _exit(0);
  }
}

bool any_running(const Guest& guest) {
  for (const Command& command : guest.commands) {
    if (command.state == CommandState::kRunning) {
      return true;
    }
  }
  return false;
}

// The machine's kernel may have been quicker than the guest's own watch.
void look_for_kills(Guest& guest, Source source) {
  const bool of_command = source == Source::kSignals || source == Source::kReport ||
                          source == Source::kShellReport || source == Source::kShellControl;
  if (guest.root.vmstat < 0 || !of_command || !any_running(guest)) {
    return;
  }
  const std::uint64_t kills = count_kills(guest.root.vmstat);
  if (kills > guest.kernels_kills) {
    flag_running(guest, protocol::kExitOutOfMemory);
  }
  guest.kernels_kills = kills;
}

void handle(Guest& guest, const struct epoll_event& event) {
  std::uint32_t index = Poller::index(event);
  look_for_kills(guest, Poller::source(event));
  switch (Poller::source(event)) {
    case Source::kListener:
      let_in(guest);
      break;
    case Source::kClient:
      on_client(guest, index, event.events);
      break;
    case Source::kSignals:
      reap(guest);
      break;
    case Source::kSpawner:
      on_spawner_end(guest);
      break;
    case Source::kOutput:
      if (guest.commands[index / 2].output[index % 2].fd >= 0) {
        on_output(guest, index / 2, index % 2);
      }
      break;
    case Source::kInput:
      if ((event.events & (EPOLLERR | EPOLLHUP)) == 0) {
        on_input_ready(guest, index);
      } else if (guest.commands[index].input >= 0) {
        on_input_unwanted(guest, index);
      }
      break;
    case Source::kReport:
      if (guest.commands[index].report >= 0) {
        on_report(guest, index);
      }
      break;
    case Source::kShellReport:
      if (guest.shells[index].report >= 0) {
        on_shell_report(guest, index);
      }
      break;
    case Source::kShellControl:
      if (guest.shells[index].control >= 0) {
        on_shell_control(guest, index);
      }
      break;
    case Source::kTimer:
      guest.timer_us = 0;
      break;
  }
}

void nearest(std::uint64_t& at, std::uint64_t deadline) {
  if (deadline != 0 && (at == 0 || deadline < at)) {
    at = deadline;
  }
}

// The first moment at which something is due that nobody will tell; 0: there is none.
std::uint64_t next_deadline(const Guest& guest) {
  std::uint64_t at = 0;
  nearest(at, guest.lease_deadline_us);
  nearest(at, guest.shutdown_deadline_us);
  std::uint64_t now = now_us();
  if (guest.freezer == kPaused) {
    nearest(at, guest.shutdown_deadline_us != 0 ? now + 10'000 : 0);
    return at;
  }
  nearest(at, guest.move_us);
  nearest(at, guest.forget_us);
  for (const Command& command : guest.commands) {
    nearest(at, command.deadline_us);
  }
  for (const Shell& shell : guest.shells) {
    nearest(at, shell.patience_us);
  }
  nearest(at, service_deadline(guest));
  if (guest.boot.memory_watch_bytes != 0 && guest.watch.next_us == 0 && any_running(guest)) {
    nearest(at, now + kMemoryWatchUs);
  }
  nearest(at, guest.watch.next_us);
  if (guest.boot.disk_watch_bytes != 0 && (any_running(guest) || !guest.disk.idle)) {
    nearest(at, guest.disk.next_us + 1);
  }
  if (guest.shutdown_deadline_us != 0) {
    nearest(at, now + 10'000);
  }
  return at;
}

// How long to wait for news, in milliseconds; -1 without an end, or until the timer comes. Shells
// have a timer: a command in a shell has its deadline so soon, and is over so soon, that to have
// the kernel's timer set and cleared for each would be a good part of what it costs. One that is
// set to come sooner is left as it is.
int wait_time(Guest& guest) {
  std::uint64_t at = next_deadline(guest);
  if (at == 0 || (guest.timer_us != 0 && guest.timer_us <= at)) {
    return -1;
  }
  if (guest.timer < 0) {
    constexpr std::uint64_t kMostMs = 3'600'000;
    std::uint64_t now = now_us();
    std::uint64_t ms = at <= now ? 0 : (at - now + 999) / 1000;
    return static_cast<int>(ms < kMostMs ? ms : kMostMs);
  }
  struct itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(at / 1'000'000);
  when.it_value.tv_nsec = static_cast<long>(at % 1'000'000 * 1000);
  timerfd_settime(guest.timer, TFD_TIMER_ABSTIME, &when, nullptr);
  guest.timer_us = at;
  return -1;
}

// Waits for news. Whoever got the answer of a shell may have the next command at once: then it is
// asked for, rather than slept for. Nothing else is to be done in that time.
int wait_for_news(Guest& guest, struct epoll_event* events, int most) {
  using protocol::Eagerness;
  if (guest.answered_us == 0 || any_running(guest)) {
    return guest.poller.wait(events, most, wait_time(guest));
  }
  std::uint64_t start = guest.answered_us;
  guest.answered_us = 0;
  Eagerness::Way way = guest.eagerness.begin();
  int count = 0;
  while (way == Eagerness::Way::kAsk && count == 0 && now_us() - start < Eagerness::kLongest) {
    count = guest.poller.wait(events, most, 0);
    if (count == 0) {
      sched_yield();
    }
  }
  if (count == 0) {
    count = guest.poller.wait(events, most, wait_time(guest));
  }
  guest.eagerness.note(now_us() - start, way);
  return count;
}

// Whether no process but the guest is left, and everybody was told how his command ended.
bool is_over(const Guest& guest) {
  for (const Client& client : guest.clients) {
    if (client.used() && client.has_output()) {
      return false;
    }
  }
  static ProcessRow rows[8];
  return !any_running(guest) && list_processes(rows, 8) <= 1;
}

// The processes that a sandbox has while nobody uses it.
std::size_t helper_tasks(const Guest& guest) {
  std::size_t count = guest.spawner >= 0 ? 2 : 1;
  for (const Shell& shell : guest.shells) {
    count += shell.report >= 0 ? 2 : 0;
  }
  return count;
}

// Where no cgroup holds the limit. Not exact: it looks every now and then, while a command runs or
// something that one left behind.
void watch_memory(Guest& guest, std::uint64_t now) {
  MemoryWatch& watch = guest.watch;
  const bool running = any_running(guest);
  watch.crowded = watch.crowded || running;
  if (!watch.crowded || watch.next_us == 0) {
    watch.next_us = watch.crowded ? now + kMemoryWatchUs : 0;
    return;
  }
  if (now < watch.next_us) {
    return;
  }
  const std::uint64_t limit = guest.boot.memory_watch_bytes;
  const bool by_kernel = kernel_of(guest.boot) == Kernel::kGvisors;
  MemoryUse use = look_at_memory(guest.root, by_kernel ? Look::kKernels : Look::kQuick);
  if (use.total() > limit && !by_kernel) {
    use = look_at_memory(guest.root, Look::kExact);
  }
  const std::uint64_t cost = now_us() - now;
  const std::uint64_t pause = running ? kMemoryWatchUs : kIdleMemoryWatchUs;
  watch.next_us = now + cost + (pause > 4 * cost ? pause : 4 * cost);
  watch.crowded = running || use.tasks > helper_tasks(guest);
  if (use.tasks >= guest.boot.processes) {
    flag_running(guest, protocol::kExitProcessLimit);
  }
  if (use.total() <= limit) {
    watch.kept = 0;
    watch.settling = false;
    return;
  }
  // Files outlive their makers: after an overstep a command may clean up, and do little else. They
  // grow until their makers are gone.
  constexpr std::uint64_t kRoomToCleanUp = 8;  // the part of the limit
  constexpr std::uint64_t kRoomForFiles = 64;
  if (watch.settling) {
    watch.kept = use.lasting + limit / kRoomForFiles;
    watch.settling = false;
  } else if (use.lasting > watch.kept || use.total() - use.lasting > limit / kRoomToCleanUp) {
    watch.settling = true;
    flag_running(guest, protocol::kExitOutOfMemory);
    kill(-1, SIGKILL);
  }
}

void expire(Guest& guest) {
  std::uint64_t now = now_us();
  if (guest.lease_deadline_us != 0 && now >= guest.lease_deadline_us) {
    _exit(3);
  }
  if (guest.shutdown_deadline_us != 0 && (now >= guest.shutdown_deadline_us || is_over(guest))) {
    _exit(0);
  }
  if (guest.freezer == kPaused) {
    return;
  }
  if (guest.move_us != 0 && now >= guest.move_us) {
    leave_workload(guest);
  }
  forget_wants(guest, now);
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    const Command& command = guest.commands[i];
    if (command.deadline_us == 0 || now < command.deadline_us) {
      continue;
    }
    if (command.state == CommandState::kQueued) {
      on_waiting_deadline(guest, i);
    } else {
      on_deadline(guest, i);
    }
  }
  for (std::uint32_t i = 0; i < kMaxShells; ++i) {
    if (guest.shells[i].patience_us != 0 && now >= guest.shells[i].patience_us) {
      on_shell_patience(guest, i);
    }
  }
  tend_services(guest, now);
  if (guest.boot.memory_watch_bytes != 0) {
    watch_memory(guest, now);
  }
  if (guest.boot.disk_watch_bytes != 0 && guest.freezer == kNone) {
    const bool running = any_running(guest);
    guest.disk.idle = guest.disk.idle && !running;
    if (!guest.disk.idle && watch_disk(guest, now) && !running) {
      static ProcessRow rows[2 + 2 * kMaxShells + 1];
      guest.disk.idle = list_processes(rows, sizeof rows / sizeof rows[0]) <= helper_tasks(guest);
    }
  }
}

void flush_all(Guest& guest) {
  for (std::uint32_t i = 0; i < kMaxClients; ++i) {
    Client& client = guest.clients[i];
    if (!client.used() || (!client.has_output() && !client.watched_for_room())) {
      continue;
    }
    bool open = true;
    while (client.has_output() && (open = client.flush()) && !client.has_output()) {
      pump_all(guest, i);
    }
    if (!open) {
      drop(guest, i);
      continue;
    }
    if (client.has_output() != client.watched_for_room()) {
      client.note_watch();
      guest.poller.change(client.fd(), client.has_output() ? EPOLLIN | EPOLLOUT : EPOLLIN,
                          Source::kClient, i);
    }
  }
  if (guest.one_shot() && !guest.clients[0].has_output()) {
    for (const Command& command : guest.commands) {
      if (command.follow_sent) {
        _exit(0);
      }
    }
  }
}

}  // namespace

[[noreturn]] void serve(Guest& guest, int control) {
  if (guest.listener >= 0) {
    guest.poller.add(guest.listener, EPOLLIN, Source::kListener, 0);
  }
  guest.poller.add(guest.signals, EPOLLIN, Source::kSignals, 0);
  adopt(guest, control);
  guest.clients[0].set_greeted();
  take_frames(guest, 0);
  for (;;) {
    struct epoll_event events[32];
    int count = wait_for_news(guest, events, 32);
    for (int i = 0; i < count; ++i) {
      handle(guest, events[i]);
    }
    expire(guest);
    flush_all(guest);
    settle_shells(guest);
  }
}

}  // namespace carrel::guest
