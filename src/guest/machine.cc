#include "guest/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "guest/contained.h"
#include "guest/maker.h"
#include "guest/root_builder.h"
#include "guest/runtime.h"
#include "guest/stand_in.h"
#include "protocol/awakening.h"
#include "protocol/boot.h"
#include "protocol/trunk.h"

namespace carrel::guest {

namespace {

using protocol::Trunk;
using protocol::TrunkKind;

constexpr int kImage = 4;
constexpr char kLine[] = "/dev/";

bool mount_one(const char* type, const char* path, unsigned long flags, Failure& failure) {
  return mount(type, path, type, flags, nullptr) == 0 || failure.at("mount", path, -errno);
}

// Half a minute at least: an emulated machine on a busy host waits long for the other end.
constexpr int kTries = 1500;
constexpr unsigned kStepUs = 20'000;

// The line to the host where there is a device for sockets: a connection to the host.
int connect_line() {
  struct sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_HOST;
  address.svm_port = kMachinePort;
  for (int i = 0; i < kTries; ++i) {
    int line = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line >= 0 &&
        connect(line, reinterpret_cast<const struct sockaddr*>(&address), sizeof address) == 0) {
      fcntl(line, F_SETFL, O_NONBLOCK);
      return line;
    }
    if (line >= 0) {
      close(line);
    }
    usleep(kStepUs);
  }
  return -1;
}

// The serial line to the host: the only port there is.
int open_line() {
  for (int i = 0; i < kTries; ++i) {
    DIR* devices = opendir(kLine);
    while (struct dirent* entry = devices == nullptr ? nullptr : readdir(devices)) {
      if (std::string_view(entry->d_name).starts_with("vport")) {
        int line = openat(dirfd(devices), entry->d_name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        struct pollfd look{line, POLLOUT, 0};
        if (line >= 0 && poll(&look, 1, 0) >= 0 && (look.revents & POLLHUP) == 0) {
          closedir(devices);
          return line;
        }
        if (line >= 0) {
          close(line);
        }
      }
    }
    if (devices != nullptr) {
      closedir(devices);
    }
    usleep(kStepUs);
  }
  return -1;
}

// The block device that the host shows becomes the root: a first file system in memory cannot be
// left by pivot_root.
bool enter_root(Failure& failure) {
  constexpr unsigned long kFlags = MS_RDONLY | MS_NOSUID | MS_NODEV;
  if (mount("/dev/vda", "/root", "erofs", kFlags, nullptr) != 0) {
    return failure.at("mount", "the root of the machine", -errno);
  }
  if (chdir("/root") != 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0 ||
      chdir("/") != 0) {
    return failure.at("enter", "the root of the machine", -errno);
  }
  return mount_one("devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, failure) &&
         mount_one("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, failure) &&
         mount_one("tmpfs", "/run", MS_NOSUID | MS_NODEV | MS_NOEXEC, failure);
}

// What the host says about this sandbox.
struct Terms {
  bool listens = false;
  SharedTree trees[protocol::kMaxTrees];
  std::size_t tree_count = 0;
  Text<protocol::kIdSize + 1> network;  // the sandbox's id; empty: it has none
};

bool read_term(std::string_view line, Terms& terms) {
  if (line == kTermListens || line == kTermOnce) {
    terms.listens = line == kTermListens;
    return true;
  }
  if (line.starts_with(kTermNetwork)) {
    terms.network.add(part(line, sizeof kTermNetwork - 1));
    return true;
  }
  if ((line != kTermFolder && line != kTermFile) || terms.tree_count == protocol::kMaxTrees) {
    return false;
  }
  using Kind = SharedTree::Kind;
  terms.trees[terms.tree_count++].kind = line == kTermFolder ? Kind::kFolder : Kind::kFile;
  return true;
}

bool read_terms(int line, Terms& terms) {
  static char text[protocol::kMaxMachineTerms];
  std::string_view rest(text, take_terms(line, text));
  bool known = !rest.empty();
  while (known && !rest.empty()) {
    const std::size_t end = rest.find('\n');
    known = end != std::string_view::npos && read_term(part(rest, 0, end), terms);
    rest = part(rest, end + 1);
  }
  return known;
}

// Makes the trees that come with the plan, and has their requests carried to the host.
bool share_trees(Terms& terms, Trunk& trunk, Failure& failure) {
  for (std::size_t i = 0; i < terms.tree_count; ++i) {
    SharedTree& tree = terms.trees[i];
    const char number = static_cast<char>(i);
    if (!share_tree(tree, failure)) {
      return false;
    }
    if (!trunk.carry_out(tree.connection, {protocol::TrunkPurpose::kFiles, {&number, 1}})) {
      return failure.at("reach", "a tree of the host", -ENOBUFS);
    }
  }
  return true;
}

bool map_ids(long child) {
  for (const char* name : {"/gid_map", "/uid_map"}) {
    Path path;
    path.add("/proc/").add_number(static_cast<std::uint64_t>(child)).add(name);
    Text<64> map;
    map.add_number(kInnerId).add(" ").add_number(kInnerId).add(" 1");
    if (write_file(AT_FDCWD, path.c_str(), map.view()) != 0) {
      return false;
    }
  }
  return true;
}

// In the sandbox's own namespaces: waits until its id is mapped.
[[noreturn]] void become_guest(int go, int stream, int image, Failure& failure) {
  char byte = 0;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool told = read(go, &byte, 1) == 1;
  // Out of the way of the fixed numbers first.
  stream = fcntl(stream, F_DUPFD, 16);
  image = fcntl(image, F_DUPFD, 16);
  if (!told || dup2(stream, kControl) != kControl || dup2(image, kImage) != kImage) {
    _exit(3);
  }
  setsid();
  syscall(SYS_setgroups, 0, nullptr);
  execute_guest(kMachineGuest, failure);
}

// The guest's process; 0: it could not be made.
long start_guest(int stream, int image, Failure& failure) {
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) {
    return 0;
  }
  const unsigned long namespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  const long child = syscall(SYS_clone, namespaces | SIGCHLD, 0, nullptr, 0, 0);
  if (child == 0) {
    close(go[1]);
    become_guest(go[0], stream, image, failure);
  }
  close(go[0]);
  const bool begun = child > 0 && map_ids(child) && write(go[1], "g", 1) == 1;
  close(go[1]);
  return begun ? child : 0;
}

// The first half of the first process's life: nothing in it belongs to a sandbox.
[[noreturn]] void prepare(int (*reach_host)()) {
  Failure unused;
  mkdir("/dev", 0755);
  mkdir("/root", 0755);
  const bool mounted = mount_one("devtmpfs", "/dev", 0, unused);
  // Nothing is open in a machine's first process; the numbers that the guest has are kept free.
  for (int fd = 0; fd >= 0 && fd < kImage;) {
    fd = open("/dev/null", O_RDWR);
  }
  const bool loaded = mounted && load_modules(unused);
  int line = reach_host();
  if (line < 0) {
    power_off();  // there is nobody to tell
  }
  await_words(line, loaded ? Prepared::kYes : Prepared::kNo);
}

// A failure before there is a guest.
[[noreturn]] void report(Trunk& trunk, int stream, Failure& failure) {
  tell_failure(trunk, stream, failure);
  power_off();
}

}  // namespace

void power_off() {
  // Nothing is synced: what is written goes to the host at once, and through this process.
  reboot(RB_AUTOBOOT);  // it is not started again: see backends/microvm
  for (;;) {
    pause();
  }
}

int run_machine(std::string_view second) {
  static Trunk trunk;
  static Opening opening;
  static Terms terms;
  Failure failure;
  if (getpid() != 1) {
    return 1;
  }
  if (second.empty() || second == kVsockWord) {
    prepare(second.empty() ? open_line : connect_line);
  }
  const int line = kMachineLine;
  fcntl(line, F_SETFD, FD_CLOEXEC);
  int image = open("/init", O_RDONLY | O_CLOEXEC);
  const bool knows = read_terms(line, terms) && image >= 0;
  // Once more, to know what was wrong.
  const bool loaded = second == kAwakeWord || load_modules(failure);
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    power_off();  // there is nobody to tell
  }
  Trunk::Owner owner;
  owner.open = call_guest;
  owner.write_first = Opening::write;
  owner.self = &opening;
  trunk.begin(protocol::TrunkEnd::kMachine, line, ends[0], owner);
  trunk.say(TrunkKind::kHello);
  if (!knows) {
    failure.at("read", "the machine's terms", -EBADMSG);
  }
  if (!knows || !loaded || !enter_root(failure) || !share_trees(terms, trunk, failure)) {
    report(trunk, ends[1], failure);
  }
  // As much as is asked for is given, as on a host that has much: the limit is about what is used.
  write_file(AT_FDCWD, "/proc/sys/vm/overcommit_memory", "1");
  for (std::size_t i = 0; i < terms.tree_count; ++i) {
    opening.trees[opening.tree_count++] = terms.trees[i].mount;
  }
  opening.listener = terms.listens ? bind_socket(SocketPlace::kFile) : -1;
  int signals = watch_children();
  const long guest = start_guest(ends[1], image, failure);
  if (guest == 0 || (terms.listens && opening.listener < 0)) {
    failure.at("start", "the guest in its machine", -errno);
    report(trunk, ends[1], failure);
  }
  close(ends[1]);
  const bool networked = !terms.network.view().empty();
  carry_guest(trunk, guest, signals,
              networked ? start_switchboard(terms.network.view(), failure) : -1);
  power_off();
}

}  // namespace carrel::guest
