#include "guest/stand_in.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/machine.h"
#include "guest/maker.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::Trunk;
using protocol::TrunkKind;

constexpr char kSocketFile[] = "/run/guest";
constexpr char kSocketName[] = "carrel-guest";
SocketPlace socket_place = SocketPlace::kFile;

bool await(int line, short events) {
  struct pollfd look{line, events, 0};
  return poll(&look, 1, -1) >= 0 || errno == EINTR;
}

struct Address {
  struct sockaddr_un is{};
  socklen_t size = 0;
};

Address socket_of_guest() {
  Address address;
  address.is.sun_family = AF_UNIX;
  // A name begins with a zero and has an end.
  const bool file = socket_place == SocketPlace::kFile;
  memcpy(address.is.sun_path + (file ? 0 : 1), file ? kSocketFile : kSocketName,
         file ? sizeof kSocketFile : sizeof kSocketName - 1);
  address.size =
      file ? sizeof address.is
           : static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + sizeof kSocketName);
  return address;
}

// What the sandbox's network has for the host, as much as there is room for.
void carry_network(Trunk& trunk, int switchboard) {
  HandedOver taken;
  while (trunk.can_carry_out() && take_outward(switchboard, taken)) {
    const bool begun = taken.fd < 0;
    const protocol::TrunkLabel label{
        begun ? protocol::TrunkPurpose::kNetwork : protocol::TrunkPurpose::kConnection,
        begun ? std::string_view() : std::string_view(taken.label, sizeof taken.label)};
    if (!trunk.carry_out(taken.fd, label)) {
      close(taken.fd);
    }
  }
}

// Whether the guest has ended.
bool reap(int signals, long guest) {
  struct signalfd_siginfo info{};
  while (read(signals, &info, sizeof info) > 0) {
  }
  bool ended = false;
  for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) {
    ended = ended || pid == guest;
  }
  return ended;
}

// Everything that the guest said reaches the host, unless nobody there takes it.
void finish(Trunk& trunk) {
  constexpr int kStepMs = 20;
  constexpr int kSteps = 250;
  unsigned ready = 0;
  for (int i = 0; i < kSteps && !trunk.is_idle(); ++i) {
    if (!trunk.serve(nullptr, 0, ready, kStepMs)) {
      return;
    }
  }
  trunk.say(TrunkKind::kGone);
  for (int i = 0; i < kSteps; ++i) {  // whoever heard it ends the machine
    if (!trunk.serve(nullptr, 0, ready, kStepMs)) {
      return;
    }
  }
}

}  // namespace

long Opening::take(int fd, const char* data, std::size_t size) {
  if (frames_ == kWithDescriptors && left_ == 0) {
    return send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (left_ > 0) {
    const ssize_t n = send(fd, data, size < left_ ? size : left_, MSG_NOSIGNAL | MSG_DONTWAIT);
    left_ -= n > 0 ? static_cast<std::size_t>(n) : 0;
    return n;
  }
  long taken = 0;
  while (have_ < sizeof head_ && static_cast<std::size_t>(taken) < size) {
    head_[have_++] = static_cast<unsigned char>(data[taken++]);
  }
  if (have_ < sizeof head_) {
    return taken;
  }
  // A socket that was just made has room for a header.
  if (!send_header(fd)) {
    errno = EPIPE;
    return -1;
  }
  have_ = 0;
  ++frames_;
  return taken;
}

bool Opening::send_header(int fd) {
  protocol::FrameHeader frame;
  if (!protocol::parse_header(
          std::span<const unsigned char, protocol::kHeaderSize>(head_, sizeof head_),
          protocol::kMaxPayload, frame)) {
    return false;
  }
  left_ = frame.size;
  const bool plan = frame.type == protocol::FrameType::kPlan;
  const int* given = plan ? trees : &listener;
  const std::size_t count = plan ? tree_count : (listener >= 0 ? 1U : 0U);
  struct iovec data{head_, sizeof head_};
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof trees)] = {};
  struct msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = static_cast<socklen_t>(CMSG_SPACE(count * sizeof(int)));
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = static_cast<socklen_t>(CMSG_LEN(count * sizeof(int)));
    memcpy(CMSG_DATA(header), given, count * sizeof(int));
  }
  const bool sent = sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof head_);
  for (std::size_t i = 0; i < count; ++i) {
    close(given[i]);
  }
  return sent;
}

bool read_line(int line, void* out, std::size_t size) {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t n = read(line, at, size);
    if (n > 0) {
      at += n;
      size -= static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !await(line, POLLIN)) {
      return false;
    }
  }
  return true;
}

bool write_line(int line, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(line, text.data(), text.size());
    if (n > 0) {
      text = part(text, static_cast<std::size_t>(n));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !await(line, POLLOUT)) {
      return false;
    }
  }
  return true;
}

std::size_t take_terms(int line, std::span<char> out) {
  unsigned char size[2];
  if (!read_line(line, size, sizeof size)) {
    return 0;
  }
  const std::size_t count = size[0] + 256U * size[1];
  return count <= out.size() && read_line(line, out.data(), count) ? count : 0;
}

int bind_socket(SocketPlace place) {
  socket_place = place;
  const Address address = socket_of_guest();
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return fd >= 0 &&
                 bind(fd, reinterpret_cast<const struct sockaddr*>(&address.is), address.size) == 0
             ? fd
             : -1;
}

int connect_to_guest() {
  const Address address = socket_of_guest();
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 &&
      connect(fd, reinterpret_cast<const struct sockaddr*>(&address.is), address.size) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

int call_guest(void*) {
  const int fd = connect_to_guest();
  if (fd >= 0) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return fd;
}

int watch_children() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

void carry_guest(Trunk& trunk, long guest, int signals, int switchboard) {
  const int others[] = {signals, switchboard};
  for (;;) {
    unsigned ready = 0;
    // What there is no room for waits where it is.
    if (!trunk.serve(others, switchboard >= 0 && trunk.can_carry_out() ? 2 : 1, ready, -1)) {
      return;
    }
    if ((ready & 1U) != 0 && reap(signals, guest)) {
      finish(trunk);
      return;
    }
    if ((ready & 2U) != 0) {
      carry_network(trunk, switchboard);
    }
  }
}

void tell_failure(Trunk& trunk, int stream, Failure& failure) {
  if (dup2(stream, kControl) == kControl) {
    pid_t child = fork();
    if (child == 0) {
      give_up(failure);
    }
  }
  close(kControl);
  close(stream);
  finish(trunk);
}

}  // namespace carrel::guest
