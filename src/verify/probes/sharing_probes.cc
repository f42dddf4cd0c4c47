#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "verify/probes/probe.h"

// What two sandboxes, or a sandbox and the host, could have in common.
namespace carrel::probe {
namespace {

constexpr key_t kKey = 0x43415252;
constexpr const char* kQueue = "/carrel-probe-mark";
constexpr const char* kFiles[] = {"/dev/shm/carrel-probe-mark", "/tmp/carrel-probe-mark",
                                  "/var/tmp/carrel-probe-mark", "/run/carrel-probe-mark",
                                  "/workspace/carrel-probe-mark"};

void leave_marks(Report& report) {
  std::size_t left = 0;
  for (const char* path : kFiles) {
    const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    left += fd >= 0 ? 1U : 0U;
    ::close(fd);
  }
  left += ::shmget(kKey, 4096, IPC_CREAT | 0666) >= 0 ? 1U : 0U;
  left += ::semget(kKey, 1, IPC_CREAT | 0666) >= 0 ? 1U : 0U;
  left += ::msgget(kKey, IPC_CREAT | 0666) >= 0 ? 1U : 0U;
  left += ::mq_open(kQueue, O_RDWR | O_CREAT, 0666, nullptr) >= 0 ? 1U : 0U;
  report.not_applicable("left " + std::to_string(left) + " marks");
}

// Argument "leave": only leaves the marks, for somebody else to look for; "hold": and stays there
// after a word that they are. "plant": leaves them and looks.
void find_marks(Report& report, Arguments arguments) {
  if (has_argument(arguments, "plant") || has_argument(arguments, "leave")) {
    leave_marks(report);
  }
  if (has_argument(arguments, "hold")) {
    constexpr char kLeft[] = "left\n";
    constexpr unsigned kSeconds = 20;
    if (::write(1, kLeft, sizeof kLeft - 1) > 0) {
      ::sleep(kSeconds);
    }
  }
  if (has_argument(arguments, "leave")) {
    return;
  }
  for (const char* path : kFiles) {
    report.must_fail(std::string("find ") + path, ::access(path, F_OK));
  }
  report.must_fail("find shared memory", ::shmget(kKey, 0, 0));
  report.must_fail("find semaphores", ::semget(kKey, 0, 0));
  report.must_fail("find messages", ::msgget(kKey, 0));
  report.must_fail("find a queue", ::mq_open(kQueue, O_RDONLY));
  report.must_fail("find a key",
                   ::syscall(SYS_request_key, "user", "carrel-probe-mark", nullptr, -4));
}

long connect_unix(const std::string& name) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof address.sun_path);
  ::memcpy(address.sun_path, name.data(), size);
  const long result =
      ::connect(fd, reinterpret_cast<const struct sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + size));
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return result;
}

// Every unix socket that this network namespace tells of. The one of the first process must not be
// among those that answer.
void connect_to_sockets(Report& report, Arguments arguments) {
  int planted = -1;
  if (has_argument(arguments, "plant")) {
    planted = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ::memcpy(address.sun_path, "\0planted", 8);
    ::bind(planted, reinterpret_cast<const struct sockaddr*>(&address),
           offsetof(struct sockaddr_un, sun_path) + 8);
    ::listen(planted, 1);
  }
  std::istringstream lines(read_some("/proc/net/unix", 1U << 20));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string word, path;
    for (int i = 0; i < 7; ++i) {
      fields >> word;
    }
    fields >> path;
    if (path.empty()) {
      continue;
    }
    if (path[0] == '@') {
      path[0] = '\0';
    }
    report.must_fail("connect to " + path.substr(path[0] == '\0' ? 1 : 0), connect_unix(path));
  }
  report.held("every listed socket was tried");
}

// Arguments: "abstract=NAME", "path=PATH" and "tcp=PORT", where the host listens.
void reach_listeners(Report& report, Arguments arguments) {
  for (const char* argument : arguments) {
    const std::string text = argument;
    const std::string value = text.substr(text.find('=') + 1);
    if (text.starts_with("abstract=")) {
      report.must_fail("connect to the abstract socket",
                       connect_unix(std::string(1, '\0') + value));
    } else if (text.starts_with("path=")) {
      report.must_fail("connect to the socket file", connect_unix(value));
      report.must_fail("the same through proc", connect_unix("/proc/1/root" + value));
    } else if (text.starts_with("tcp=")) {
      for (const std::uint32_t host : {0x7f000001U, 0x7f000002U, 0U}) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(value.c_str())));
        address.sin_addr.s_addr = htonl(host);
        report.must_fail(
            "connect by TCP",
            ::connect(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof address));
        ::close(fd);
      }
      const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
      struct sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = htons(static_cast<std::uint16_t>(std::atoi(value.c_str())));
      address.sin6_addr = in6addr_loopback;
      report.must_fail(
          "connect by TCP over IPv6",
          ::connect(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof address));
      ::close(fd);
    }
  }
}

constexpr Probe kProbes[] = {
    {"A19_NothingOfAnotherSandboxIsFound", find_marks},
    {"E14_NoSocketOfTheFirstProcessAnswers", connect_to_sockets},
    {"E14_ListenersOfTheHostAreUnreachable", reach_listeners},
};

}  // namespace

std::span<const Probe> sharing_probes() { return kProbes; }

}  // namespace carrel::probe
