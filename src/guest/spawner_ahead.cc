#include "guest/spawner_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/lockdown.h"
#include "guest/program.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

constexpr int kSocket = 3;
constexpr int kClocks = 4;

// CRITICAL: it has capabilities until end_lock(), and is part of the workload after
// enter_workload(). Where one of the steps fails there is no spawner, and the first command has
// another one forked.
[[noreturn]] void wait_for_guest(Guest& guest, int socket) {
  Failure failure;
  int clocks = -1;
  if (!end_lock(guest.boot, clocks, failure) || !enter_workload(guest, failure)) {
    _exit(1);
  }
  socket = fcntl(socket, F_DUPFD_CLOEXEC, kClocks + 1);
  clocks = clocks < 0 ? -1 : fcntl(clocks, F_DUPFD_CLOEXEC, kClocks + 1);
  const bool placed = dup3(socket, kSocket, O_CLOEXEC) == kSocket &&
                      (clocks < 0 || dup3(clocks, kClocks, O_CLOEXEC) == kClocks) &&
                      close_from(clocks < 0 ? kClocks : kClocks + 1) == 0;
  char offsets[sizeof(ClockOffsets)];
  const ssize_t size = placed ? read(kSocket, offsets, sizeof offsets) : -1;
  if (size <= 0 || !begin_clocks(clocks < 0 ? -1 : kClocks,
                                 {offsets, static_cast<std::size_t>(size)}, failure)) {
    _exit(1);
  }
  run_spawner(guest.boot, kSocket);
}

void end_spawner(Guest& guest) {
  close(guest.spawner);
  kill(guest.spawner_pid, SIGKILL);
  waitpid(guest.spawner_pid, nullptr, 0);
  guest.spawner = -1;
  guest.spawner_pid = 0;
}

}  // namespace

bool lock_with_spawner(Guest& guest, int& clocks, Failure& failure) {
  if (!begin_lock(guest.boot, guest.root, failure)) {
    return false;
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return failure.at("make", "a socket for the spawner", -errno);
  }
  // Before the guest has clocks for its children: who is forked into them fixes when they begin.
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    wait_for_guest(guest, ends[1]);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return failure.at("fork", "the spawner", -errno);
  }
  guest.spawner = ends[0];
  guest.spawner_pid = pid;
  const bool locked = end_lock(guest.boot, clocks, failure);
  guest.clocks = clocks >= 0 ? protocol::Clocks::kOwn : protocol::Clocks::kHosts;
  return locked;
}

bool start_waiting_spawner(Guest& guest, const protocol::Boot& boot, int clocks, Failure& failure) {
  const ClockOffsets offsets = offsets_now();
  const bool same = protocol::has_same_workload(guest.boot, boot);
  if (!begin_clocks(clocks, offsets.view(), failure)) {
    return false;
  }
  // CRITICAL: another environment, limit or filter is another spawner.
  if (!same || send(guest.spawner, offsets.view().data(), offsets.view().size(),
                    MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    end_spawner(guest);
  }
  return true;
}

}  // namespace carrel::guest
