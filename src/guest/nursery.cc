#include "guest/nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "guest/captive_stock.h"
#include "guest/descriptors.h"
#include "guest/root.h"
#include "guest/runtime.h"
#include "guest/spare_networks.h"

namespace carrel::guest {

namespace {

void close_all(const Received& frame) {
  for (std::size_t i = 0; i < frame.count; ++i) {
    close(frame.descriptors[i]);
  }
}

// What a fork gives: a copy of this process, in namespaces of its own. Returns 0 in the child.
long fork_first_process(int group, int& pidfd) {
  struct clone_args arguments{};
  arguments.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  arguments.pidfd = reinterpret_cast<unsigned long long>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  if (group >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<unsigned long long>(group);
  }
  long result = syscall(SYS_clone3, &arguments, sizeof arguments);
  return result < 0 ? -errno : result;
}

// Who does not take it has lost its end of the stream, and the new process ends.
void answer(int stream, int error_number, int pidfd, const CaptiveSockets& sockets) {
  unsigned char fields[protocol::kSpawnedSize];
  protocol::Writer writer(fields);
  const bool made = error_number == 0;
  protocol::write_spawned(writer,
                          {static_cast<std::uint32_t>(error_number), made ? sockets.present : 0});
  int descriptors[protocol::kMaxSpawnedDescriptors] = {pidfd};
  memcpy(descriptors + 1, sockets.descriptors, sockets.count * sizeof(int));
  send_with_descriptors(stream, {sizeof fields, 0, protocol::FrameType::kSpawned},
                        {reinterpret_cast<const char*>(fields), sizeof fields},
                        std::span<const int>(descriptors, made ? 1 + sockets.count : 0));
}

// Somebody may have stopped who is at the other end.
void wait_no_longer(int socket) {
  struct timeval patience{1, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

// A first process that waits for its sandbox.
struct Waiting {
  int pidfd = -1;
  int job = -1;  // what it is to do is sent here

  void dismiss() {
    for (int* fd : {&pidfd, &job}) {
      if (*fd >= 0) {
        close(*fd);
        *fd = -1;
      }
    }
  }
};

// The request, and with it the stream and, unless it is -1, the network.
bool pass_on(int job, const Received& frame, int network) {
  unsigned char head[protocol::kHeaderSize];
  protocol::write_header({static_cast<std::uint32_t>(frame.size), 0, protocol::FrameType::kSpawn},
                         head);
  struct iovec data[2] = {{head, sizeof head}, {frame.payload, frame.size}};
  const int descriptors[] = {frame.descriptors[0], network};
  const std::size_t size = (network < 0 ? 1 : 2) * sizeof(int);
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  struct msghdr message{};
  message.msg_iov = data;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = static_cast<socklen_t>(CMSG_SPACE(size));
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = static_cast<socklen_t>(CMSG_LEN(size));
  memcpy(CMSG_DATA(header), descriptors, size);
  return sendmsg(job, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof head + frame.size);
}

class NurseryServer {
 public:
  NurseryServer(const protocol::Nursery& nursery, int listener)
      : nursery_(nursery), listener_(listener) {}

  // Returns in a first process, whose kControl is where its job will come from.
  void run() {
    for (;;) {
      struct pollfd waits[2] = {{kControl, POLLIN, 0}, {listener_, POLLIN, 0}};
      int ready = poll(waits, 2, asked_ ? kPrepareMs : waiting_.job < 0 ? -1 : kForgetMs);
      if (ready == 0 && !asked_) {
        waiting_.dismiss();
        networks_.forget();
        captives_.forget();
        captive_asked_ = false;
      }
      // Only who has just been asked is likely to be asked again; but whoever asked has the
      // processors first.
      if (ready == 0 && asked_) {
        if (captive_asked_) {
          captives_.prepare(nursery_.captive);  // and this process goes on to another network
        }
        if (fork_ahead(-1) == 0) {
          return;
        }
      }
      if (ready <= 0) {
        asked_ = false;
        continue;
      }
      if (waits[0].revents != 0 && serve(kControl, Client::kMaker)) {
        return;
      }
      if (waits[1].revents != 0 && welcome()) {
        return;
      }
    }
  }

 private:
  static constexpr int kPrepareMs = 5;
  static constexpr int kForgetMs = 5000;
  enum class Client { kMaker, kOther };

  // Somebody of the same user; the directory of the socket lets in no one else. True in a first
  // process, as in the calls below.
  bool welcome() {
    int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      return false;
    }
    wait_no_longer(client);
    bool first = serve(client, Client::kOther);
    if (!first) {
      close(client);
    }
    return first;
  }

  bool serve(int socket, Client client) {
    Received frame;
    bool heard = receive(socket, protocol::FrameType::kSpawn, frame);
    if (!heard && client == Client::kMaker) {
      _exit(0);
    }
    if (heard && frame.count > 0) {
      CaptiveSockets sockets;
      long result = provide(frame, sockets);
      if (result == 0) {
        return true;
      }
      answer(frame.descriptors[0], result < 0 ? static_cast<int>(-result) : 0, waiting_.pidfd,
             sockets);
      sockets.close_all();
      waiting_.dismiss();
      asked_ = true;
    }
    close_all(frame);
    free(frame.payload);
    return false;
  }

  // A first process that has its job, as waiting_, or a negative errno; 0 in that process. With it
  // the sockets of its network, if that was made ahead.
  long provide(const Received& frame, CaptiveSockets& sockets) {
    protocol::Spawn spawn;
    if (!protocol::parse_spawn(frame.view(), spawn) ||
        frame.count > protocol::kMaxSpawnDescriptors) {
      return -EBADMSG;
    }
    if (spawn.shared != nursery_.shared || spawn.alike != nursery_.alike ||
        spawn.terms != nursery_.terms) {
      return -ESTALE;
    }
    const int network = captives_.take(spawn.captive, sockets);
    long result = give_job(frame, network);
    if (result == 0) {
      return result;
    }
    if (network >= 0) {
      close(network);
    } else if (!spawn.captive.empty()) {
      networks_.keep_from_others();  // it will be furnished by its sandbox
    }
    captive_asked_ = captive_asked_ || !spawn.captive.empty();
    return result;
  }

  long give_job(const Received& frame, int network) {
    // One that waits was born outside of the group.
    const bool in_group = frame.count > 1;
    if (!in_group && waiting_.job >= 0 && pass_on(waiting_.job, frame, network)) {
      return 1;
    }
    waiting_.dismiss();
    long result = fork_ahead(in_group ? frame.descriptors[1] : -1);
    if (result <= 0) {
      return result;
    }
    return pass_on(waiting_.job, frame, network) ? result : -EPIPE;
  }

  // 0 in the new process; its copy of everything else that is open here is closed.
  long fork_ahead(int group) {
    if (!networks_.enter()) {
      return -errno;
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return -errno;
    }
    long result = fork_first_process(group, waiting_.pidfd);
    if (result == 0) {
      // CRITICAL: the nursery's own socket among others, by which anybody could have sandboxes
      // made.
      if (dup3(ends[1], kControl, O_CLOEXEC) < 0 || close_from(kControl + 1) != 0) {
        _exit(1);
      }
      return 0;
    }
    close(ends[1]);
    if (result < 0) {
      close(ends[0]);
      return result;
    }
    wait_no_longer(ends[0]);
    waiting_.job = ends[0];
    networks_.lend(waiting_.pidfd);
    return result;
  }

  const protocol::Nursery& nursery_;
  int listener_;
  SpareNetworks networks_;
  CaptiveStock captives_;
  Waiting waiting_;
  bool asked_ = false;
  bool captive_asked_ = false;  // lately
};

// Takes on the identity of the sandbox, and moves into its network if that was made ahead.
bool settle_in(const Received& frame, const protocol::Spawn& spawn, NetworkReady& network,
               Failure& failure) {
  if (frame.count < 1 || frame.count > 2 || dup3(frame.descriptors[0], kControl, O_CLOEXEC) < 0) {
    _exit(1);
  }
  close(frame.descriptors[0]);
  if (frame.count == 2) {
    if (setns(frame.descriptors[1], CLONE_NEWNET) != 0) {
      return failure.at("move into", "the network namespace", -errno);
    }
    close(frame.descriptors[1]);
    network = NetworkReady::kCaptive;
  }
  // CRITICAL: as root each sandbox has ids of its own.
  if (spawn.uid != 0 && (syscall(SYS_setresgid, spawn.gid, spawn.gid, spawn.gid) != 0 ||
                         syscall(SYS_setresuid, spawn.uid, spawn.uid, spawn.uid) != 0)) {
    return failure.at("take", "the sandbox's user id", -errno);
  }
  // Its own files in /proc are its own until it is locked in.
  return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 ||
         failure.at("take", "the sandbox's identity", -errno);
}

}  // namespace

bool in_own_user_namespace() {
  char map[64];
  int fd = openat(AT_FDCWD, "/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, map, sizeof map);
  if (fd >= 0) {
    close(fd);
  }
  // The first one maps all ids to themselves, beginning with zero.
  std::string_view text(map, n < 0 ? 0 : static_cast<std::size_t>(n));
  std::size_t first = text.find_first_not_of(' ');
  return first != std::string_view::npos && text[first] != '0';
}

void be_nursery(const Received& first, Received& frame, protocol::Spawn& spawn, BuiltRoot& root,
                NetworkReady& network) {
  Failure failure;
  protocol::Nursery nursery;
  // One that cannot be had is no error of anybody's sandbox: it ends, and nobody finds it.
  if (!protocol::parse_nursery(first.view(), nursery) || first.count > 1) {
    _exit(1);
  }
  // Its children end without anybody waiting for them; a change of ids keeps the capabilities.
  signal(SIGCHLD, SIG_IGN);
  prctl(PR_SET_NAME, "carrel-nursery");
  if (!build_shared(nursery, failure) ||
      prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0 ||
      prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
    _exit(1);
  }
  NurseryServer server(nursery, first.count == 1 ? first.descriptors[0] : -1);
  server.run();
  signal(SIGCHLD, SIG_DFL);
  const bool built = build_further(nursery.alike, root, failure);
  if (!receive(kControl, protocol::FrameType::kSpawn, frame)) {
    _exit(0);  // it was not needed
  }
  prctl(PR_SET_NAME, "carrel-guest");
  protocol::parse_spawn(frame.view(), spawn);
  if (!settle_in(frame, spawn, network, failure) || !built) {
    give_up(failure);
  }
}

}  // namespace carrel::guest
