#include "guest/shell_outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/processes.h"
#include "guest/program.h"

namespace carrel::guest {

namespace {

constexpr const char* kOutputs[] = {"out", "err"};

// How many descriptors a shell has that opened none itself: the three streams and its own six.
constexpr off_t kOwnDescriptors = 3 + kShellDirectory - kShellOutput + 1;

constexpr const char* kSpareDescriptor = "fd/200";

enum class Holders {
  kNone,       // but the shell
  kPerhaps,    // the shell itself, by another descriptor
  kProcesses,  // there are some, and any may
};

// Whether the shell left a process behind since it was known to have none. Such a process is below
// the shell, or below its minder.
bool has_child(const Guest& guest, Shell& shell) {
  constexpr std::uint64_t kFew = 64;
  if (shell.child != 0 && exists(shell.child)) {
    return true;
  }
  std::uint64_t newest = newest_process(guest.root.loadavg);
  if (newest == 0) {
    return true;
  }
  if (newest == shell.childless) {
    return false;
  }
  bool few = newest > shell.childless && newest - shell.childless <= kFew;
  // One that was looked for can have left a child of its own meanwhile.
  const bool none =
      few && !any_between(shell.childless, newest) && newest_process(guest.root.loadavg) == newest;
  shell.child = none ? 0 : find_child(shell.pid, shell.minder);
  if (shell.child == 0) {
    shell.childless = newest;
  }
  return shell.child != 0;
}

// Who else can hold the pipes of a command that has ended.
Holders find_holders(const Guest& guest, Shell& shell) {
  if (has_child(guest, shell)) {
    return Holders::kProcesses;
  }
  // A kernel before 6.2 does not tell the number of descriptors; then it is never certain.
  struct stat info{};
  if (fstatat(shell.proc, "fd", &info, 0) != 0) {
    return Holders::kPerhaps;
  }
  // While it tells the status, a shell keeps its own /dev/null on the first free descriptor.
  bool telling = info.st_size == kOwnDescriptors + 1 &&
                 fstatat(shell.proc, kSpareDescriptor, &info, 0) == 0 && S_ISCHR(info.st_mode);
  return info.st_size == kOwnDescriptors || telling ? Holders::kNone : Holders::kPerhaps;
}

// The command that has the lasting pipes; nullptr when they are lost.
Command* find_borrower(Guest& guest, const Shell& shell) {
  if (shell.borrower == kNone) {
    return nullptr;
  }
  Command& command = guest.commands[shell.borrower];
  bool same = command.id == shell.borrower_id && command.lasting;
  return same && command.output[0].fd >= 0 && command.output[1].fd >= 0 ? &command : nullptr;
}

// Reads what is in a pipe that nobody holds any more, which is the command's. If more comes than
// was there, somebody holds it after all: a process of the sandbox can open it by the shell's
// /proc.
Holders read_the_rest(Guest& guest, std::uint32_t index, std::uint32_t which) {
  int waiting = 0;
  if (ioctl(guest.commands[index].output[which].fd, FIONREAD, &waiting) != 0) {
    return Holders::kProcesses;
  }
  // At least one, which tells whether the shell itself still holds it.
  for (int left = waiting / static_cast<int>(Ring::kFew) + 3; left > 0; --left) {
    const Got got = read_output(guest, index, which);
    if (got != Got::kData && got != Got::kShort) {
      return got == Got::kNothing ? Holders::kNone : Holders::kProcesses;
    }
  }
  return Holders::kProcesses;
}

// Takes the lasting pipes from a command that has ended, if nobody else holds them.
Holders reclaim(Guest& guest, Shell& shell, const Command& command) {
  shell.unsettled = false;
  const std::uint64_t childless = shell.childless;
  Holders holders =
      command.state == CommandState::kFinished ? find_holders(guest, shell) : Holders::kProcesses;
  // A process that has ended meanwhile can have written after the outputs were read to their end.
  const bool had_child = shell.childless != childless;
  for (std::uint32_t which = 0; which < 2 && holders == Holders::kNone; ++which) {
    if (had_child || !command.output[which].resting) {
      holders = read_the_rest(guest, shell.borrower, which);
    }
  }
  if (holders == Holders::kNone) {
    for (std::uint32_t which = 0; which < 2; ++which) {
      const OutputStream& stream = command.output[which];
      if (stream.watched) {
        guest.poller.remove(stream.fd);
      }
      shell.lasting[which] = stream.fd;
      set_output(guest, shell.borrower, which, -1);
    }
    shell.borrower = kNone;
  }
  return holders;
}

// What is in a pipe before its command begins is not that command's: a process that is not below
// the shell opened the pipe by the shell's /proc. False if it is writing still.
bool empty_pipe(int pipe) {
  int waiting = 0;
  if (ioctl(pipe, FIONREAD, &waiting) != 0) {
    return false;
  }
  char waste[4096];
  for (int left = waiting / static_cast<int>(sizeof waste) + 3; waiting > 0 && left > 0; --left) {
    if (read(pipe, waste, sizeof waste) <= 0) {
      return true;
    }
  }
  return waiting == 0;
}

void watch_both(Guest& guest, std::uint32_t index) {
  watch_output(guest, index, 0);
  watch_output(guest, index, 1);
}

// Whether the command's outputs were read to their end for now.
bool read_out(Guest& guest, std::uint32_t index, std::uint32_t which) {
  Got got = Got::kData;
  for (int i = 0; i < 4 && got == Got::kData; ++i) {
    got = read_output(guest, index, which);
  }
  return got == Got::kShort || got == Got::kNothing;
}

}  // namespace

int open_lasting(Shell& shell, int (&writers)[2]) {
  shell.borrower = kNone;
  shell.unsettled = false;
  shell.childless = 0;
  shell.child = 0;
  for (std::uint32_t which = 0; which < 2; ++which) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return -errno;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    shell.lasting[which] = ends[0];
    writers[which] = ends[1];
  }
  return 0;
}

bool borrow_lasting(Guest& guest, Shell& shell, std::uint32_t index) {
  if (shell.lasting[0] < 0) {
    const Command* last = find_borrower(guest, shell);
    if (last == nullptr) {
      return false;
    }
    if (reclaim(guest, shell, *last) != Holders::kNone) {
      watch_both(guest, shell.borrower);
      return false;
    }
  }
  if (!empty_pipe(shell.lasting[0]) || !empty_pipe(shell.lasting[1])) {
    return false;
  }
  for (std::uint32_t which = 0; which < 2; ++which) {
    set_output(guest, index, which, shell.lasting[which]);
    shell.lasting[which] = -1;
  }
  Command& command = guest.commands[index];
  command.lasting = true;
  shell.borrower = index;
  shell.borrower_id = command.id;
  return true;
}

bool make_fifo(int directory, const char* name, int& reader) {
  unlinkat(directory, name, 0);
  if (mkfifoat(directory, name, 0600) != 0) {
    return false;
  }
  reader = openat(directory, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  return reader >= 0;
}

bool make_outputs(Guest& guest, Shell& shell, std::uint32_t index) {
  bool merged = (guest.commands[index].flags & protocol::kStartMerged) != 0;
  for (std::uint32_t which = 0; which < (merged ? 1U : 2U); ++which) {
    int& fifo = shell.fifo[which];
    if (fifo < 0 && !make_fifo(shell.directory, kOutputs[which], fifo)) {
      return false;
    }
    set_output(guest, index, which, fifo);
    fifo = -1;
  }
  return true;
}

void take_back_outputs(Guest& guest, Shell& shell, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.lasting) {
    bool over = shell.report < 0;
    for (std::uint32_t which = 0; which < 2; ++which) {
      bool empty = command.output[which].fd >= 0 && read_out(guest, index, which);
      command.output[which].resting = empty && !over;
    }
    shell.unsettled = !over;
    guest.unsettled = guest.unsettled || shell.unsettled;
    return;
  }
  for (std::uint32_t which = 0; which < 2; ++which) {
    OutputStream& stream = command.output[which];
    if (stream.fd < 0) {
      continue;
    }
    // The end comes after what was written, if it comes: a short output takes two reads.
    Got got = Got::kData;
    for (int i = 0; i < 4 && (got == Got::kData || got == Got::kShort); ++i) {
      got = read_output(guest, index, which);
    }
    if (got != Got::kEnd) {
      continue;
    }
    if (stream.watched) {
      guest.poller.remove(stream.fd);
    }
    shell.fifo[which] = stream.fd;
    set_output(guest, index, which, -1);
  }
}

void settle_shells(Guest& guest) {
  if (!guest.unsettled) {
    return;
  }
  guest.unsettled = false;
  for (Shell& shell : guest.shells) {
    const Command* last = shell.unsettled ? find_borrower(guest, shell) : nullptr;
    // Without a process that holds them nobody writes until the next command begins.
    if (last != nullptr && reclaim(guest, shell, *last) == Holders::kProcesses) {
      watch_both(guest, shell.borrower);
    }
    shell.unsettled = false;
  }
}

}  // namespace carrel::guest
