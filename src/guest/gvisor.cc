#include "guest/gvisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <string_view>

#include "guest/mount_table.h"
#include "guest/runtime.h"

namespace carrel::guest {

bool check_kernel(Kernel kernel, Failure& failure) {
  if (kernel == Kernel::kHosts) {
    return true;
  }
  // Its log begins with its name, and everybody may read it. That of the host's kernel is refused
  // to whoever has no capability, and begins with another name.
  constexpr int kReadAll = 3;
  char text[256];
  const long n = syscall(SYS_syslog, kReadAll, text, static_cast<int>(sizeof text));
  const std::string_view log(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::string_view first = part(log, 0, log.find('\n'));
  return first.find("Starting gVisor") != std::string_view::npos ||
         failure.at("rely on these walls: the kernel is not", "gVisor's", 0);
}

bool give_up_devices(Failure& failure) {
  constexpr uid_t kNobody = 65534;
  if (getuid() != 0 && is_given_up("/dev")) {
    return true;  // a container's /dev is root's, and this is not root
  }
  DIR* devices = opendir("/dev");
  bool given = devices != nullptr && chown("/dev", kNobody, kNobody) == 0;
  while (struct dirent* entry = given ? readdir(devices) : nullptr) {
    struct stat info{};
    if (entry->d_name[0] != '.' &&
        fstatat(dirfd(devices), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(info.st_mode)) {
      Path path;
      path.add("/dev/").add(entry->d_name);
      given = mounted_at(path.view()) != MountedAs::kNothing ||
              chown(path.c_str(), kNobody, kNobody) == 0;
    }
  }
  const int reason = errno;
  if (devices != nullptr) {
    closedir(devices);
  }
  return given || failure.at("give up", "the devices", -reason);
}

bool is_given_up(const char* folder) {
  struct stat info{};
  return stat(folder, &info) == 0 && info.st_uid != getuid() && info.st_gid != getgid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int take_from_door(int door) {
  char byte = 0;
  struct iovec data{&byte, 1};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do {
    n = recvmsg(door, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) {
    return n < 0 && errno == EAGAIN ? -EAGAIN : -EPIPE;
  }
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -EAGAIN;
  }
  int connection = -1;
  memcpy(&connection, CMSG_DATA(header), sizeof connection);
  return connection;
}

std::uint64_t gvisors_memory() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0 || info.freeram > info.totalram) {
    return 0;
  }
  return static_cast<std::uint64_t>(info.totalram - info.freeram) * info.mem_unit;
}

}  // namespace carrel::guest
