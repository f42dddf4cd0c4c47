#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "verify/probes/probe.h"

// What can be reached over a network. The addresses are the host's own, which were given, and those
// that are kept for documentation: nobody is there.
namespace carrel::probe {
namespace {

constexpr std::array kNobody = {"192.0.2.1", "198.51.100.7", "203.0.113.9"};
constexpr const char* kNobody6 = "2001:db8::1";

struct sockaddr_in address_of(const char* text, int port) {
  struct sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

// A connection that is on its way has left already.
template <typename Address>
long try_to_connect(int family, int type, const Address& address) {
  const int fd = ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return -1;
  }
  long result =
      type == SOCK_STREAM
          ? ::connect(fd, reinterpret_cast<const struct sockaddr*>(&address), sizeof address)
          : ::sendto(fd, "x", 1, 0, reinterpret_cast<const struct sockaddr*>(&address),
                     sizeof address);
  const int reason = errno;
  if (result < 0 && reason == EINPROGRESS) {
    result = 0;
  }
  ::close(fd);
  errno = reason;
  return result;
}

void look_for_interfaces(Report& report) {
  std::istringstream lines(read_some("/proc/net/dev", 65536));
  std::string line;
  for (int number = 0; std::getline(lines, line); ++number) {
    constexpr int kHeadings = 2;
    if (number >= kHeadings) {
      const std::size_t first = line.find_first_not_of(' ');
      const std::string name = line.substr(first, line.find(':') - first);
      report.expect("'" + name + "' is the loopback interface", name == "lo");
    }
  }
  std::istringstream routes(read_some("/proc/net/route", 65536));
  std::getline(routes, line);
  report.expect("there is no route", !std::getline(routes, line));
}

// Arguments: "address=A.B.C.D:PORT" where the host listens.
void reach_outside(Report& report, Arguments arguments) {
  look_for_interfaces(report);
  for (const char* argument : arguments) {
    const std::string text = argument;
    const std::size_t equals = text.find('=');
    const std::size_t colon = text.rfind(':');
    if (!text.starts_with("address=") || colon == text.npos) {
      continue;
    }
    const std::string host = text.substr(equals + 1, colon - equals - 1);
    const int port = std::atoi(text.c_str() + colon + 1);
    report.must_fail("connect to the host's own address",
                     try_to_connect(AF_INET, SOCK_STREAM, address_of(host.c_str(), port)));
  }
  for (const char* nobody : kNobody) {
    const std::string name = nobody;
    for (const int port : {80, 443, 53}) {
      report.must_fail("connect to " + name + ":" + std::to_string(port),
                       try_to_connect(AF_INET, SOCK_STREAM, address_of(nobody, port)));
    }
    report.must_fail("send a datagram to " + name,
                     try_to_connect(AF_INET, SOCK_DGRAM, address_of(nobody, 53)));
  }
  struct sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(443);
  ::inet_pton(AF_INET6, kNobody6, &address.sin6_addr);
  report.must_fail("connect to " + std::string(kNobody6),
                   try_to_connect(AF_INET6, SOCK_STREAM, address));
  report.must_fail("send a datagram to " + std::string(kNobody6),
                   try_to_connect(AF_INET6, SOCK_DGRAM, address));
}

constexpr Probe kProbes[] = {
    {"D07_NothingOutsideIsReached", reach_outside},
};

}  // namespace

std::span<const Probe> network_probes() { return kProbes; }

}  // namespace carrel::probe
