// The first process of a container that only its standard input and output lead to.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "guest/contained.h"
#include "guest/machine.h"
#include "guest/maker.h"
#include "guest/runtime.h"
#include "guest/stand_in.h"
#include "kernel/uapi/landlock.h"
#include "protocol/greeting.h"
#include "protocol/trunk.h"

namespace carrel::guest {

namespace {

using protocol::Trunk;

constexpr int kImage = 4;
constexpr int kFirstOwn = 16;  // out of the way of the numbers that the guest has
constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";

struct Line {
  int in = -1;
  int out = -1;
};

// Its standard streams become its line, and nothing else is open. Without it there is nobody to
// tell.
Line take_line() {
  Line line;
  bool taken = close_from(STDERR_FILENO + 1) >= 0;
  line.in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, kFirstOwn);
  line.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, kFirstOwn);
  int null = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream = 0; stream <= kImage; ++stream) {
    taken = taken && dup2(null, stream) == stream;
  }
  if (!taken || fcntl(line.in, F_SETFL, O_NONBLOCK) != 0 ||
      fcntl(line.out, F_SETFL, O_NONBLOCK) != 0) {
    _exit(3);
  }
  return line;
}

void greet(const Line& line) {
  protocol::Greeting greeting;
  int boot = openat(AT_FDCWD, kBootId, O_RDONLY | O_CLOEXEC);
  const long abi = syscall(kernel::uapi::kLandlockCreateRuleset, nullptr, 0,
                           kernel::uapi::kLandlockQueryVersion);
  greeting.landlock = abi > 0 ? static_cast<std::uint32_t>(abi) : 0;
  unsigned char data[protocol::kGreetingSize];
  if (boot < 0 || read(boot, greeting.boot_id, sizeof greeting.boot_id) !=
                      static_cast<ssize_t>(sizeof greeting.boot_id)) {
    _exit(3);
  }
  close(boot);
  protocol::write_greeting(greeting, data);
  if (!write_line(line.out, {reinterpret_cast<const char*>(data), sizeof data})) {
    _exit(3);
  }
}

// What the host says about this sandbox.
struct Terms {
  char text[protocol::kMaxContainedTerms];
  std::string_view trees[protocol::kMaxTrees];
  std::size_t tree_count = 0;
  std::string_view apart[8];
  std::size_t apart_count = 0;
  std::string_view network;
  bool listens = false;
  bool machine = false;  // the kernel is not the host's
};

bool read_term(std::string_view line, Terms& terms) {
  if (line == kTermListens || line == kTermOnce) {
    terms.listens = line == kTermListens;
  } else if (line == kTermMachine) {
    terms.machine = true;
  } else if (line.starts_with(kTermNetwork)) {
    terms.network = part(line, sizeof kTermNetwork - 1);
  } else if (line.starts_with(kTermTree) && terms.tree_count < protocol::kMaxTrees) {
    terms.trees[terms.tree_count++] = part(line, sizeof kTermTree - 1);
  } else if (line.starts_with(kTermApart) && terms.apart_count < 8) {
    terms.apart[terms.apart_count++] = part(line, sizeof kTermApart - 1);
  } else {
    return false;
  }
  return true;
}

bool read_terms(int line, Terms& terms) {
  std::string_view rest(terms.text, take_terms(line, terms.text));
  bool known = !rest.empty();
  while (known && !rest.empty()) {
    const std::size_t end = rest.find('\n');
    known = end != std::string_view::npos && read_term(part(rest, 0, end), terms);
    rest = part(rest, end + 1);
  }
  return known;
}

// CRITICAL: nobody on the host can look at this process. On the host's own kernel its namespaces
// are compared here; on another one there are none of the host's.
bool check_apart(const Terms& terms, Failure& failure) {
  for (std::size_t i = 0; i < terms.apart_count; ++i) {
    const std::string_view theirs = terms.apart[i];
    const std::string_view kind = part(theirs, 0, theirs.find(':'));
    Text<64> path;
    path.add("/proc/self/ns/").add(kind);
    char own[64];
    const ssize_t size = readlink(path.c_str(), own, sizeof own);
    if (size <= 0 || std::string_view(own, static_cast<std::size_t>(size)) == theirs) {
      return failure.at("rely on this container: it shares the host's namespace", kind, 0);
    }
  }
  return true;
}

bool open_trees(const Terms& terms, Opening& opening, Failure& failure) {
  for (std::size_t i = 0; i < terms.tree_count; ++i) {
    Path path;
    path.add(terms.trees[i]);
    int tree = open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (tree < 0) {
      return failure.at("open", terms.trees[i], -errno);
    }
    opening.trees[opening.tree_count++] = tree;
  }
  return true;
}

// The program in memory, as its maker gives it elsewhere: by that the guest knows what else is a
// memory file (memory.cc), and nothing that a machine shows of the host's is executed again.
int copy_program() {
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int copy =
      static_cast<int>(syscall(SYS_memfd_create, "carrel-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr std::size_t kPiece = 1U << 20;
  ssize_t n = own < 0 || copy < 0 ? -1 : 1;
  while (n > 0) {
    n = sendfile(copy, own, nullptr, kPiece);
  }
  if (own >= 0) {
    close(own);
  }
  return n == 0 && fcntl(copy, F_ADD_SEALS, kSeals) == 0 ? copy : -1;
}

// In the sandbox's own namespaces.
[[noreturn]] void become_guest(const Terms& terms, int stream, unsigned uid, unsigned gid) {
  Failure failure;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int image = copy_program();
  if (dup2(stream, kControl) != kControl) {
    _exit(3);
  }
  if (image < 0 || dup2(image, kImage) != kImage) {
    failure.at("copy", "the guest's program", -errno);
    give_up(failure);
  }
  if (!map_container(uid, gid, failure)) {
    give_up(failure);
  }
  execute_guest(terms.machine ? kMachineGuest : "carrel-guest", failure);
}

// The guest's process; 0: it could not be made.
long start_guest(const Terms& terms, int stream) {
  const unsigned uid = getuid();
  const unsigned gid = getgid();
  const unsigned long namespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  const long child = syscall(SYS_clone, namespaces | SIGCHLD, 0, nullptr, 0, 0);
  if (child == 0) {
    become_guest(terms, stream, uid, gid);
  }
  return child > 0 ? child : 0;
}

}  // namespace

int run_contained_away() {
  static Trunk trunk;
  static Opening opening;
  static Terms terms;
  Failure failure;
  const Line line = take_line();
  greet(line);
  const bool knows = read_terms(line.in, terms);
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return 3;  // there is nobody to tell
  }
  Trunk::Owner owner;
  owner.open = call_guest;
  owner.write_first = Opening::write;
  owner.self = &opening;
  trunk.begin(protocol::TrunkEnd::kMachine, {line.in, line.out}, ends[0], owner);
  trunk.say(protocol::TrunkKind::kHello);
  if (!knows) {
    failure.at("read", "the container's terms", -EBADMSG);
  }
  if (!knows || !check_container(ContainedAs::kHostsUser, failure) ||
      !check_apart(terms, failure) || !open_trees(terms, opening, failure)) {
    tell_failure(trunk, ends[1], failure);
    return 1;
  }
  opening.listener = terms.listens ? bind_socket(SocketPlace::kNetwork) : -1;
  int signals = watch_children();
  const long guest = start_guest(terms, ends[1]);
  if (guest == 0 || (terms.listens && opening.listener < 0)) {
    failure.at("make", "the sandbox's namespaces in the container", -errno);
    tell_failure(trunk, ends[1], failure);
    return 1;
  }
  close(ends[1]);
  // With this process everything in the container ends.
  carry_guest(trunk, guest, signals,
              terms.network.empty() ? -1 : start_switchboard(terms.network, failure));
  return 0;
}

}  // namespace carrel::guest
