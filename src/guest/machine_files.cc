// Trees of the host's that a machine is given: FUSE, whose server is on the host.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/machine.h"
#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

namespace {

constexpr std::size_t kLargest = 160U << 10;  // a message: more than the server allows
constexpr std::size_t kAnswerHead = 16;

// Carries messages one way and the other. Answers are always taken, so that nobody waits for
// somebody who waits for him.
class Ferry {
 public:
  Ferry(int kernel, int host) : kernel_(kernel), host_(host) {}

  void run() {
    while (pass()) {
    }
  }

 private:
  bool pass() {
    struct pollfd watched[2] = {
        {host_, static_cast<short>(POLLIN | (asked_ > sent_ ? POLLOUT : 0)), 0},
        {kernel_, static_cast<short>(asked_ > sent_ ? 0 : POLLIN), 0}};
    if (poll(watched, 2, -1) < 0) {
      return errno == EINTR;
    }
    if ((watched[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !take_answer()) {
      return false;
    }
    if (asked_ == sent_ && watched[1].revents != 0 && !take_request()) {
      return false;
    }
    return send_request();
  }

  // The kernel hands out whole messages.
  bool take_request() {
    const ssize_t n = read(kernel_, request_, sizeof request_);
    sent_ = 0;
    asked_ = n > 0 ? static_cast<std::size_t>(n) : 0;
    // ENOENT: whoever asked has not waited.
    return n > 0 || errno == EAGAIN || errno == EINTR || errno == ENOENT;
  }

  bool send_request() {
    while (sent_ < asked_) {
      const ssize_t n = send(host_, request_ + sent_, asked_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
      }
      sent_ += static_cast<std::size_t>(n);
    }
    return true;
  }

  bool take_answer() {
    std::uint32_t size = kAnswerHead;
    if (have_ >= sizeof size) {
      memcpy(&size, answer_, sizeof size);
    }
    if (size < kAnswerHead || size > sizeof answer_) {
      return false;
    }
    const ssize_t n = recv(host_, answer_ + have_, size - have_, MSG_DONTWAIT);
    if (n <= 0) {
      return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    have_ += static_cast<std::size_t>(n);
    if (have_ >= kAnswerHead) {
      memcpy(&size, answer_, sizeof size);
      if (have_ == size) {
        (void)!write(kernel_, answer_, have_);  // nobody may wait for it any more
        have_ = 0;
      }
    }
    return true;
  }

  int kernel_;
  int host_;
  std::size_t asked_ = 0;
  std::size_t sent_ = 0;
  std::size_t have_ = 0;
  char request_[kLargest];
  char answer_[kLargest];
};

[[noreturn]] void run_ferry(int kernel, int host) {
  // CRITICAL: who is ended for want of memory must not be the one that writes it back.
  write_file(AT_FDCWD, "/proc/self/oom_score_adj", "-1000");
  // Nothing else that is open in the first process stays open here.
  kernel = fcntl(kernel, F_DUPFD, 64);
  host = fcntl(host, F_DUPFD, 64);
  const unsigned low = static_cast<unsigned>(kernel < host ? kernel : host);
  const unsigned high = static_cast<unsigned>(kernel < host ? host : kernel);
  close_between(3, low - 1);
  close_between(low + 1, high - 1);
  close_from(high + 1);
  static Ferry ferry(kernel, host);
  ferry.run();
  _exit(0);
}

int mount_fuse(int device, SharedTree::Kind kind) {
  Text<24> number;
  number.add_number(static_cast<std::uint64_t>(device));
  int context = fs_open("fuse");
  int result = context < 0 ? context : fs_set(context, "source", "carrel");
  result = result < 0 ? result : fs_set(context, "fd", number.c_str());
  result = result < 0
               ? result
               : fs_set(context, "rootmode", kind == SharedTree::Kind::kFile ? "100000" : "40000");
  result = result < 0 ? result : fs_set(context, "user_id", "0");
  result = result < 0 ? result : fs_set(context, "group_id", "0");
  result = result < 0 ? result : fs_set(context, "allow_other", nullptr);
  result = result < 0 ? result : fs_set(context, "default_permissions", nullptr);
  result = result < 0 ? result : fs_create(context);
  result =
      result < 0 ? result : fs_mount(context, kernel::uapi::kAttrNoSuid | kernel::uapi::kAttrNoDev);
  if (context >= 0) {
    close(context);
  }
  return result;
}

}  // namespace

bool share_tree(SharedTree& tree, Failure& failure) {
  int device = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  int ends[2] = {-1, -1};
  tree.mount = device < 0 ? -errno : mount_fuse(device, tree.kind);
  if (tree.mount < 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return failure.at("mount", "a tree of the host", tree.mount < 0 ? tree.mount : -errno);
  }
  const pid_t child = fork();
  if (child == 0) {
    run_ferry(device, ends[1]);
  }
  close(device);
  close(ends[1]);
  tree.connection = ends[0];
  return child > 0 || failure.at("start", "a process for a tree", -errno);
}

}  // namespace carrel::guest
