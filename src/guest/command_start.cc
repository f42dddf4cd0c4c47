#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/gvisor.h"
#include "guest/lockdown.h"
#include "guest/processes.h"
#include "guest/program.h"
#include "guest/requests.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;

struct ChildWork {
  const Guest& guest;
  const protocol::Start& start;
  const ProgramIo& io;
  int report;
};

int become_command(void* given) {
  const ChildWork& work = *static_cast<const ChildWork*>(given);
  Failure failure;
  if (!become_workload(work.guest.boot, work.guest.ruleset, failure)) {
    Report message{ReportKind::kNotStarted, static_cast<std::uint32_t>(failure.error_number), 0};
    write_whole(work.report, {reinterpret_cast<const char*>(&message), sizeof message});
    _exit(126);
  }
  run_program(work.guest.boot, work.start, work.io, work.report);
}

// One-shot: the command is the guest's own child. Both share the memory until it has executed its
// program, and the guest waits for that: it spares the copy. Nothing else runs in the sandbox yet.
int fork_command(Guest& guest, const protocol::Start& start, const ProgramIo& io, int report,
                 pid_t& program) {
  alignas(64) static char stack[64U << 10];
  ChildWork work{guest, start, io, report};
  program = clone(become_command, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &work);
  if (program < 0 && errno == EINVAL) {  // before Linux 6.1 memory is not shared between times
    program = clone(become_command, stack + sizeof stack, SIGCHLD, &work);
  }
  return program < 0 ? -errno : 0;
}

// Makes a pipe for one output of a command; returns the end for the program, or a negative errno.
int open_output(Guest& guest, std::uint32_t index, std::uint32_t which) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return -errno;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  set_output(guest, index, which, ends[0]);
  watch_output(guest, index, which);
  return ends[1];
}

// gVisor has terminals by their names only, which nobody inside can give to another file.
int open_other_end(int master, Kernel kernel) {
  constexpr int kFlags = O_RDWR | O_NOCTTY | O_CLOEXEC;
  if (kernel == Kernel::kHosts) {
    return ioctl(master, TIOCGPTPEER, kFlags);
  }
  unsigned number = 0;
  if (ioctl(master, static_cast<int>(TIOCGPTN), &number) != 0) {
    return -1;
  }
  Path path;
  path.add("/dev/pts/").add_number(number);
  return openat(AT_FDCWD, path.c_str(), kFlags | O_NOFOLLOW);
}

int open_terminal(Guest& guest, std::uint32_t index, const protocol::Start& start) {
  int master = openat(AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  int unlock = 0;
  if (master < 0) {
    return -errno;
  }
  int slave =
      ioctl(master, TIOCSPTLCK, &unlock) != 0 ? -1 : open_other_end(master, kernel_of(guest.boot));
  if (slave < 0) {
    int reason = -errno;
    close(master);
    return reason;
  }
  struct winsize size{start.rows, start.columns, 0, 0};
  ioctl(master, TIOCSWINSZ, &size);
  set_output(guest, index, 0, master);
  watch_output(guest, index, 0);
  Command& command = guest.commands[index];
  command.input = fcntl(master, F_DUPFD_CLOEXEC, 3);
  guest.poller.add(command.input, 0, Source::kInput, index);
  return slave;
}

int open_io(Guest& guest, std::uint32_t index, const protocol::Start& start, ProgramIo& io) {
  if ((start.flags & protocol::kStartTerminal) != 0) {
    int slave = open_terminal(guest, index, start);
    io.input = slave;
    io.output = slave < 0 ? -1 : fcntl(slave, F_DUPFD_CLOEXEC, 3);
    io.error = slave < 0 ? -1 : fcntl(slave, F_DUPFD_CLOEXEC, 3);
    return slave < 0 ? slave : 0;
  }
  if ((start.flags & protocol::kStartStdin) != 0) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return -errno;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    io.input = ends[0];
    guest.commands[index].input = ends[1];
    guest.poller.add(ends[1], 0, Source::kInput, index);
  } else {
    io.input = openat(AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
  }
  io.output = open_output(guest, index, 0);
  if (io.output < 0) {
    return io.output;
  }
  io.error = (start.flags & protocol::kStartMerged) != 0 ? fcntl(io.output, F_DUPFD_CLOEXEC, 3)
                                                         : open_output(guest, index, 1);
  return io.error < 0 ? io.error : 0;
}

void close_io(const ProgramIo& io) {
  for (int fd : {io.input, io.output, io.error}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

void tell_started(Guest& guest, std::uint32_t index) {
  const Command& command = guest.commands[index];
  if (command.client == kNone) {
    return;
  }
  unsigned char buffer[12];
  protocol::Writer writer(buffer);
  writer.u64(command.id);
  writer.u32(static_cast<std::uint32_t>(command.program));
  guest.clients[command.client].send(command.channel, FrameType::kStarted,
                                     {reinterpret_cast<const char*>(buffer), writer.size()});
}

// How long after its first command could be started a guest stays where it was born: to move costs
// what the first command would have to wait for.
constexpr std::uint64_t kMoveAfterUs = 20'000;

}  // namespace

bool enter_workload(const Guest& guest, Failure& failure) {
  // The last group is inherited as long as the guest itself is in it.
  const std::uint32_t joined = guest.join_count - (guest.with_work ? 1U : 0U);
  for (std::uint32_t i = 0; i < joined; ++i) {
    // CRITICAL: outside of the workload's group its limits would not hold.
    if (!write_whole(guest.join[i], "0")) {
      return failure.at("join", "the control groups of the workload", -errno);
    }
  }
  return become_workload(guest.boot, guest.ruleset, failure);
}

int start_spawner(Guest& guest) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return -errno;
  }
  pid_t pid = fork();
  if (pid == 0) {
    Failure failure;
    if (!enter_workload(guest, failure)) {
      _exit(1);
    }
    dup2(ends[1], 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    if (close_from(4) != 0) {
      _exit(1);
    }
    run_spawner(guest.boot, 3);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return -errno;
  }
  guest.spawner = ends[0];
  guest.spawner_pid = pid;
  watch_spawner(guest);
  return 0;
}

void watch_spawner(Guest& guest) {
  if (guest.with_work && guest.move_us == 0) {
    guest.move_us = now_us() + kMoveAfterUs;
  }
  guest.poller.add(guest.spawner, 0, Source::kSpawner, 0);
}

// In a process of its own: the write takes milliseconds, in which nobody on the host can join a
// group.
void leave_workload(Guest& guest) {
  const pid_t child = fork();
  if (child == 0) {
    write_whole(guest.own_group, "1");
    _exit(0);
  }
  guest.move_us = child < 0 ? now_us() + kMoveAfterUs : 0;
  guest.with_work = child < 0;
}

int spawn(Guest& guest, std::string_view payload, const ProgramIo& io, int report) {
  if (guest.spawner >= 0) {
    int result =
        is_dying(guest.spawner_pid) ? -EPIPE : ask_spawner(guest.spawner, payload, io, report);
    if (result != -EPIPE && result != -ECONNRESET) {
      return result;
    }
    on_spawner_end(guest);
  }
  int result = start_spawner(guest);
  return result < 0 ? result : ask_spawner(guest.spawner, payload, io, report);
}

void on_spawner_end(Guest& guest) {
  guest.poller.close(guest.spawner);
  guest.spawner_pid = 0;
}

void start_files(Guest& guest, std::uint32_t index, std::string_view payload) {
  Command& command = guest.commands[index];
  const std::uint32_t client = command.client;
  command.state = CommandState::kRunning;
  command.client = kNone;
  command.started_us = now_us();
  command.deadline_us = command.started_us + command.timeout_us;
  int ends[2] = {-1, -1};
  int nothing = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
  int result = nothing < 0 || pipe2(ends, O_CLOEXEC) != 0 ? -errno : 0;
  if (result == 0) {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    command.report = ends[0];
    guest.poller.add(command.report, EPOLLIN, Source::kReport, index);
    const int connection = guest.clients[client].fd();
    fcntl(connection, F_SETFL, 0);  // the worker waits for what comes
    result = spawn(guest, payload, {connection, connection, nothing}, ends[1]);
  }
  for (int fd : {nothing, ends[1]}) {
    if (fd >= 0) {
      close(fd);
    }
  }
  if (result < 0) {
    const std::uint32_t channel = command.channel;
    fcntl(guest.clients[client].fd(), F_SETFL, O_NONBLOCK);
    free_command(guest, index);
    refuse(guest, client, channel, protocol::Refusal::kInternal, -result,
           "no process for this sandbox's files");
    return;
  }
  guest.poller.remove(guest.clients[client].fd());
  guest.clients[client].close();
}

void start_exec(Guest& guest, std::uint32_t index, const protocol::Start& start,
                std::string_view payload) {
  Command& command = guest.commands[index];
  command.state = CommandState::kRunning;
  command.started_us = now_us();
  command.started_wall_ms = wall_clock_ms();
  command.deadline_us = command.started_us + command.timeout_us;
  if (!start.workdir.empty()) {
    command.workdir = strndup(start.workdir.data(), start.workdir.size());
  }
  ProgramIo io;
  int ends[2] = {-1, -1};
  int result = pipe2(ends, O_CLOEXEC) != 0 ? -errno : open_io(guest, index, start, io);
  if (result == 0) {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    command.report = ends[0];
    guest.poller.add(command.report, EPOLLIN, Source::kReport, index);
    result = guest.one_shot() ? fork_command(guest, start, io, ends[1], command.program)
                              : spawn(guest, payload, io, ends[1]);
  }
  close_io(io);
  if (ends[1] >= 0) {
    close(ends[1]);
  }
  if (result < 0) {
    note_not_started(guest, index, -result);
    return;
  }
  tell_started(guest, index);
}

}  // namespace carrel::guest
