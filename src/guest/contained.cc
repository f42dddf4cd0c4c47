#include "guest/contained.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <span>

#include "guest/furnished.h"
#include "guest/maker.h"
#include "guest/runtime.h"
#include "protocol/frame.h"

namespace carrel::guest {

namespace {

constexpr int kImage = 4;
constexpr int kPidfdOfChild = 0x1000;  // CLONE_PIDFD

}  // namespace

void call_from_container() {
  struct sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(sizeof kDoor <= sizeof address.sun_path);
  memcpy(address.sun_path, kDoor, sizeof kDoor);
  int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Without it there is nobody to tell.
  if (door < 0 ||
      connect(door, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0 ||
      dup2(door, kControl) != kControl || fcntl(kControl, F_SETFD, 0) != 0) {
    _exit(3);
  }
}

namespace {

bool call_maker(Failure& failure) {
  call_from_container();
  int null = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
  bool dropped = null >= 0;
  for (int stream = 0; stream < kControl; ++stream) {
    dropped = dropped && dup2(null, stream) == stream;
  }
  return (dropped && close_from(kControl + 1) >= 0) ||
         failure.at("close", "what it was started with", -errno);
}

// By a program that has some: the kernel's last capability is followed by EINVAL.
bool can_gain_others(std::uint64_t allowed) {
  for (unsigned long capability = 0; capability <= 63; ++capability) {
    if ((allowed >> capability & 1U) == 0 && prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1) {
      return true;
    }
  }
  return false;
}

// Whether the root of this user namespace is root in the one above, too; so it is in the host's
// own.
bool is_root_above(const char* path) {
  char text[128];
  int fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) {
    close(fd);
  }
  text[n > 0 ? n : 0] = '\0';
  // The first line is that of the lowest id, in columns: inside, above, how many.
  char* rest = text;
  const unsigned long inside = strtoul(rest, &rest, 10);
  char* end = rest;
  const unsigned long above = strtoul(rest, &end, 10);
  return end == rest || inside != 0 || above == 0;
}

bool map_id(const char* path, unsigned outside) {
  Text<64> map;
  map.add_number(kInnerId).add(" ").add_number(outside).add(" 1");
  return write_file(AT_FDCWD, path, map.view()) == 0;
}

// The program that it becomes comes when its maker has seen it; the end of the stream means give
// up.
int wait_for_image() {
  char byte = 0;
  struct iovec data{&byte, 1};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(kControl, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  struct cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    _exit(3);
  }
  int image = -1;
  memcpy(&image, CMSG_DATA(header), sizeof image);
  return image;
}

// In the sandbox's own namespaces.
[[noreturn]] void become_guest(unsigned uid, unsigned gid, Failure& failure) {
  if (!map_container(uid, gid, failure)) {
    give_up(failure);
  }
  // The image comes as the first free number, which is the one that it is to have.
  if (wait_for_image() != kImage) {
    failure.at("prepare", "the guest's descriptors", -EBADF);
    give_up(failure);
  }
  execute_guest("carrel-guest", failure);
}

// Tells the maker which process is the guest. It is named by a descriptor: numbers differ outside.
bool introduce(int process) {
  unsigned char head[protocol::kHeaderSize];
  protocol::write_header({0, 0, protocol::FrameType::kRoomChecked},
                         std::span<unsigned char, protocol::kHeaderSize>(head));
  struct iovec data{head, sizeof head};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &process, sizeof process);
  return sendmsg(kControl, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof head);
}

}  // namespace

bool check_container(ContainedAs user, Failure& failure) {
  if (getpid() != 1) {
    return failure.at("rely on this container: it shares", "a PID namespace", 0);
  }
  const bool owner = user == ContainedAs::kOwner;
  if (owner ? getuid() != 0 || getgid() != 0 || is_root_above("/proc/self/uid_map") ||
                  is_root_above("/proc/self/gid_map")
            : getuid() == 0 || getgid() == 0) {
    return failure.at("rely on this container: its user is", owner ? "not its engine's" : "root",
                      0);
  }
  // Without it the kernel does not let a root be mapped further down.
  const std::uint64_t allowed = owner ? 1ULL << CAP_SETFCAP : 0;
  if (!has_only(allowed) || can_gain_others(allowed)) {
    return failure.at("rely on this container: there are", "capabilities", 0);
  }
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
    return failure.at("rely on this container: there can be", "new privileges", 0);
  }
  if (!has_only_loopback()) {
    return failure.at("rely on this container: there is", "a network", 0);
  }
  return true;
}

bool map_container(unsigned uid, unsigned gid, Failure& failure) {
  return (write_file(AT_FDCWD, "/proc/self/setgroups", "deny") == 0 &&
          map_id("/proc/self/gid_map", gid) && map_id("/proc/self/uid_map", uid)) ||
         failure.at("map", "the user in the container", -errno);
}

bool keep_capabilities() {
  constexpr unsigned kKept[] = {CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SETPCAP, CAP_DAC_OVERRIDE};
  struct __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2] = {};
  for (unsigned capability : kKept) {
    struct __user_cap_data_struct& set = sets[capability / 32];
    set.effective = set.permitted = set.inheritable |= 1U << (capability % 32);
  }
  bool kept = syscall(SYS_capset, &header, sets) == 0;
  for (unsigned capability : kKept) {
    kept = kept && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) == 0;
  }
  return kept;
}

[[noreturn]] void execute_guest(const char* name, Failure& failure) {
  if (setresgid(kInnerId, kInnerId, kInnerId) != 0 ||
      setresuid(kInnerId, kInnerId, kInnerId) != 0 || !keep_capabilities()) {
    failure.at("take", "the sandbox's user id", -errno);
    give_up(failure);
  }
  if (close_from(kImage + 1) < 0) {
    failure.at("prepare", "the guest's descriptors", -errno);
    give_up(failure);
  }
  const char* arguments[] = {name, nullptr};
  const char* environment[] = {nullptr};
  syscall(SYS_execveat, kImage, "", arguments, environment, AT_EMPTY_PATH);
  failure.at("execute", "the guest", -errno);
  give_up(failure);
}

int run_contained(ContainedAs user) {
  Failure failure;
  if (!call_maker(failure) || !check_container(user, failure)) {
    give_up(failure);
  }
  const unsigned uid = getuid();
  const unsigned gid = getgid();
  int process = -1;
  const unsigned long namespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  const long child = syscall(SYS_clone, namespaces | kPidfdOfChild | SIGCHLD, 0, &process, 0, 0);
  if (child < 0) {
    failure.at("make", "the sandbox's namespaces in the container", -errno);
    give_up(failure);
  }
  if (child == 0) {
    become_guest(uid, gid, failure);
  }
  // From here on it only waits.
  struct __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct nothing[2] = {};
  const bool told = syscall(SYS_capset, &header, nothing) == 0 && introduce(process);
  close(process);
  // CRITICAL: the stream is the guest's alone; its end is how either side learns of the other's.
  close(kControl);
  if (!told) {
    return 1;  // and with the first process everything in the container ends
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(child), &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace carrel::guest
