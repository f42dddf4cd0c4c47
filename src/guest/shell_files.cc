#include "guest/shell_files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/program.h"
#include "guest/runtime.h"
#include "guest/shell_outputs.h"

namespace carrel::guest {

namespace {

// What bash runs. It is one line, so that a command's errors say "line 1", and it is parsed once,
// so that aliases cannot change it.
//
// First the six descriptors become close-on-exec, so that no program that a command starts has
// them: bash keeps the copies that it makes for a redirection that way (the first is 10), and
// passes it on when one is duplicated. Such descriptors it protects from a command's exec, too.
//
// Each round waits for a byte and reads kind and text. A command of kind 2 has the lasting outputs
// and an empty input (the shell's own streams are all /dev/null). One of kind 1 has three more
// words: the status to begin with, and the paths of stdin and stderr. The last redirection does
// nothing but set the kind to 0: those before it have worked. That is told, and the status, and
// the nonce that lies behind the text: so no variable has it while the command runs.
//
// What a round needs is tried every time. If a command took something away (a function named
// "builtin", a disabled eval, a readonly variable), the loop ends before it has waited for another
// command, and bash exits with the status of the last one. The loop's own condition ends it when
// nothing is executed any more (set -n): it spoils the kind that each round must read anew.
#define CARREL_TELL                                                         \
  "__carrel_last=$?; builtin mapfile -td '' -n1 -u197 __carrel_nonce && "   \
  "builtin echo \" ${__carrel_nonce-} $__carrel $__carrel_last\" >&198 || " \
  "{ __carrel=-1; __carrel_status \"$__carrel_last\"; };; "
#define CARREL_RUN_OPENED                                                            \
  "builtin eval \"${__carrel[1]}\" <\"${__carrel_more[1]}\" >/proc/self/fd/199/out " \
  "2>\"${__carrel_more[2]}\" 0<&\"$((__carrel = 0))\"; "
constexpr std::string_view kDriver =
    "{ exec 193>&10; } 194>&-; exec 194>&193 193>&-; "
    "{ exec 193>&10; } 195>&-; exec 195>&193 193>&-; "
    "{ exec 193<&10; } 196<&-; exec 196<&193 193<&-; "
    "{ exec 193<&10; } 197<&-; exec 197<&193 193<&-; "
    "{ exec 193>&10; } 198>&-; exec 198>&193 193>&-; "
    "{ exec 193<&10; } 199<&-; exec 199<&193 193<&-; "
    "__carrel_status() { builtin return \"$1\"; return \"$1\"; }; readonly -f __carrel_status; "
    "shopt -s expand_aliases; echo ready >&198; "
    "for ((__carrel = 0; __carrel >= 0 && (__carrel = -1);)); do "
    "builtin eval && builtin mapfile -n1 -u196 __carrel_go && "
    "builtin mapfile -td '' -n2 -u197 __carrel; "
    "case ${__carrel-} in "
    "2) builtin eval \"${__carrel[1]}\" <&2 >&194 2>&195 0<&\"$((__carrel = 0))\"; " CARREL_TELL
    "1) builtin mapfile -td '' -n3 -u197 __carrel_more && "
    "if __carrel_status \"${__carrel_more[0]}\"; then " CARREL_RUN_OPENED "else " CARREL_RUN_OPENED
    "fi; " CARREL_TELL "*) __carrel=-1; __carrel_status \"${__carrel_last-}\";; esac; done";
#undef CARREL_TELL
#undef CARREL_RUN_OPENED

// A longer text does not stay in memory.
constexpr std::size_t kKeptText = 16U << 10;
constexpr std::size_t kSmallText = 512;

// Nothing is written before the shell has opened its side: a pipe that is written and closed before
// would never open.
bool lay_out_input(Guest& guest, const Shell& shell, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.input >= 0) {
    return true;  // of a shell that never came to open it
  }
  int reader = -1;
  if (!make_fifo(shell.directory, "in", reader)) {
    return false;
  }
  command.input = openat(shell.directory, "in", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  command.input_opened = false;
  close(reader);
  return command.input >= 0;
}

bool write_at(int fd, std::string_view data, std::size_t offset) {
  while (!data.empty()) {
    ssize_t n = pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n <= 0) {
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
  return true;
}

bool write_text(Shell& shell, const Command& command) {
  static char small[1024];
  bool given = (command.flags & protocol::kStartStdin) != 0;
  bool merged = (command.flags & protocol::kStartMerged) != 0;
  Text<4> head;
  head.add(command.lasting ? "2" : "1").add({"", 1});
  Text<128> tail;
  if (!command.lasting) {
    tail.add_number(shell.last_status).add({"", 1});
    tail.add(given ? "/proc/self/fd/199/in" : "/dev/null").add({"", 1});
    tail.add(merged ? "/proc/self/fd/199/out" : "/proc/self/fd/199/err").add({"", 1});
  }
  tail.add(shell.nonce).add({"", 1});
  std::size_t size = 0;
  shell.text_size = head.view().size() + command.text_size + 1 + tail.view().size();
  bool fits = shell.text_size <= sizeof small;
  if (lseek(shell.text, 0, SEEK_SET) != 0) {
    return false;
  }
  for (std::string_view piece :
       {head.view(), std::string_view(command.text, command.text_size + 1), tail.view()}) {
    if (fits) {
      memcpy(small + size, piece.data(), piece.size());
    } else if (!write_at(shell.text_writer, piece, size)) {
      return false;
    }
    size += piece.size();
  }
  return !fits || write_at(shell.text_writer, {small, size}, 0);
}

}  // namespace

char* take_text(Guest& guest, std::size_t size) {
  if (size > kSmallText) {
    return static_cast<char*>(malloc(size));
  }
  char* spare = guest.spare_text;
  guest.spare_text = nullptr;
  return spare != nullptr ? spare : static_cast<char*>(malloc(kSmallText));
}

void free_text(Guest& guest, Command& command) {
  if (guest.spare_text == nullptr && command.text_size + 1 <= kSmallText) {
    guest.spare_text = command.text;
  } else {
    free(command.text);
  }
  command.text = nullptr;
}

void make_nonce(char* nonce) {
  static unsigned char stock[256];
  static std::size_t used = sizeof stock;
  if (used == sizeof stock) {
    getrandom(stock, sizeof stock, 0);
    used = 0;
  }
  for (int i = 0; i < 8; ++i) {
    unsigned char byte = stock[used++];
    nonce[2 * i] = "0123456789abcdef"[byte >> 4];
    nonce[2 * i + 1] = "0123456789abcdef"[byte & 15];
  }
  nonce[16] = '\0';
}

std::string_view shell_driver() { return kDriver; }

int open_files(Guest& guest, Shell& shell) {
  Text<24> name;
  name.add("shell").add_number(static_cast<std::uint64_t>(&shell - guest.shells.data()));
  int base = guest.root.tmpfs[kGuestSlot];
  if (mkdirat(base, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return -errno;
  }
  shell.directory = openat(base, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (shell.directory < 0) {
    return -errno;
  }
  unlinkat(shell.directory, "text", 0);
  shell.text_writer =
      openat(shell.directory, "text", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  shell.text_size = 0;
  if (shell.text_writer < 0) {
    return -errno;
  }
  shell.text = openat(shell.directory, "text", O_RDONLY | O_CLOEXEC);
  return shell.text < 0 ? -errno : 0;
}

void close_files(Guest& guest, Shell& shell) {
  for (int* fd : {&shell.directory, &shell.text, &shell.text_writer, &shell.wake, &shell.proc,
                  &shell.fifo[0], &shell.fifo[1], &shell.lasting[0], &shell.lasting[1]}) {
    guest.poller.close(*fd);
  }
}

bool lay_out(Guest& guest, Shell& shell, std::uint32_t index) {
  const Command& command = guest.commands[index];
  bool given = (command.flags & protocol::kStartStdin) != 0;
  bool merged = (command.flags & protocol::kStartMerged) != 0;
  bool plain = !given && !merged && shell.last_status == 0;
  if (!(plain && borrow_lasting(guest, shell, index)) && !make_outputs(guest, shell, index)) {
    return false;
  }
  if (given && !lay_out_input(guest, shell, index)) {
    return false;
  }
  return write_text(shell, command);
}

void keep_little_text(Shell& shell) {
  if (shell.text_size > kKeptText && ftruncate(shell.text_writer, 0) == 0) {
    shell.text_size = 0;
  }
}

bool open_input(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  struct pollfd side{command.input, POLLOUT, 0};
  if (command.input < 0 || command.input_opened) {
    return true;
  }
  if (poll(&side, 1, 0) != 1 || (side.revents & POLLERR) != 0) {
    return false;  // nobody reads it
  }
  command.input_opened = true;
  guest.poller.add(command.input, 0, Source::kInput, index);
  on_input_ready(guest, index);
  return true;
}

}  // namespace carrel::guest
