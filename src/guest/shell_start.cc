#include "guest/shell_start.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/program.h"
#include "guest/shell_files.h"
#include "guest/shell_outputs.h"

namespace carrel::guest {

namespace {

// What all shells share is made with the first.
void prepare(Guest& guest) {
  if (guest.timer < 0) {
    guest.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    guest.poller.add(guest.timer, EPOLLIN | EPOLLET, Source::kTimer, 0);
  }
}

// Has the spawner start a bash on these descriptors. 0 or a negative errno.
int spawn_bash(Guest& guest, const Shell& shell, int wake, int control, const int (&lasting)[2],
               int report) {
  static constexpr char kArguments[] = "bash\0--noprofile\0--norc\0-c\0";
  char arguments[4096];
  std::size_t size = 0;
  for (std::string_view piece : {std::string_view(kArguments, sizeof kArguments - 1),
                                 shell_driver(), std::string_view("\0bash", 6)}) {
    memcpy(arguments + size, piece.data(), piece.size());
    size += piece.size();
  }
  protocol::Start start;
  start.kind = protocol::StartKind::kExec;
  start.timeout_ms = protocol::kMaxTimeoutMs;
  start.arguments = {6, {arguments, size}};
  unsigned char payload[sizeof arguments + 256];
  protocol::Writer writer(payload);
  protocol::write_start(writer, start);

  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  ProgramIo io{
      null, null, null, wake, shell.text, control, shell.directory, {lasting[0], lasting[1]}};
  int result = spawn(guest, {reinterpret_cast<const char*>(payload), writer.size()}, io, report);
  close(null);
  return result;
}

}  // namespace

Shell* find_shell(Guest& guest, std::string_view name) {
  Shell* free = nullptr;
  for (Shell& shell : guest.shells) {
    if (shell.name[0] != '\0' && std::string_view(shell.name) == name) {
      return &shell;
    }
    if (shell.name[0] == '\0' && free == nullptr) {
      free = &shell;
    }
  }
  if (free != nullptr) {
    memcpy(free->name, name.data(), name.size());
    free->name[name.size()] = '\0';
  }
  return free;
}

int start_shell(Guest& guest, Shell& shell) {
  int wake[2] = {-1, -1};
  int control[2] = {-1, -1};
  int report[2] = {-1, -1};
  int lasting[2] = {-1, -1};
  prepare(guest);
  int result = open_files(guest, shell);
  if (result == 0) {
    result = open_lasting(shell, lasting);
  }
  for (int* ends : {wake, control, report}) {
    if (result == 0 && pipe2(ends, O_CLOEXEC) != 0) {
      result = -errno;
    }
  }
  if (result == 0) {
    result = spawn_bash(guest, shell, wake[0], control[1], lasting, report[1]);
  }
  for (int* fd : {&wake[0], &control[1], &report[1], &lasting[0], &lasting[1], &wake[1],
                  &control[0], &report[0]}) {
    // The last three are the guest's own.
    if (*fd >= 0 && (result < 0 || (fd != &wake[1] && fd != &control[0] && fd != &report[0]))) {
      close(*fd);
    }
  }
  if (result < 0) {
    close_files(guest, shell);
    return result;
  }
  fcntl(control[0], F_SETFL, O_NONBLOCK);
  fcntl(report[0], F_SETFL, O_NONBLOCK);
  shell.wake = wake[1];
  shell.control = control[0];
  shell.report = report[0];
  shell.minder = 0;
  shell.pid = 0;
  shell.line_size = 0;
  shell.last_status = 0;
  shell.nonce[0] = '\0';
  shell.unfit = false;
  shell.unran = false;
  shell.given_up = false;
  shell.patience_us = 0;
  shell.state = ShellState::kStarting;
  std::uint32_t index = static_cast<std::uint32_t>(&shell - guest.shells.data());
  guest.poller.add(shell.control, EPOLLIN, Source::kShellControl, index);
  guest.poller.add(shell.report, EPOLLIN, Source::kShellReport, index);
  return 0;
}

}  // namespace carrel::guest
