#include "egress/guest_sockets.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/unix_socket.h"
#include "egress/io.h"
#include "protocol/frame.h"

namespace carrel::egress {
namespace {

struct Kind {
  int family;
  int type;
  std::uint16_t port;
};
constexpr std::array<Kind, 7> kRight = {{{AF_INET, SOCK_STREAM, 61001},
                                         {AF_INET6, SOCK_STREAM, 61001},
                                         {AF_INET, SOCK_DGRAM, 61053},
                                         {AF_INET6, SOCK_DGRAM, 61053},
                                         {AF_INET, SOCK_STREAM, 61053},
                                         {AF_INET6, SOCK_STREAM, 61053},
                                         {AF_INET, SOCK_STREAM, 3128}}};
constexpr std::uint32_t kAll = (1U << kRight.size()) - 1;

bool enter_new_network() {
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool made = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM, 0));
  return made && ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

UniqueFd make(const Kind& kind, in_addr_t where = INADDR_LOOPBACK) {
  UniqueFd fd(::socket(kind.family, kind.type, 0));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(kind.port);
  four.sin_addr.s_addr = htonl(where);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(kind.port);
  six.sin6_addr = in6addr_loopback;
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  const bool bound = kind.family == AF_INET
                         ? ::bind(fd.get(), reinterpret_cast<sockaddr*>(&four), sizeof four) == 0
                         : ::bind(fd.get(), reinterpret_cast<sockaddr*>(&six), sizeof six) == 0;
  if (!bound || (kind.type == SOCK_STREAM && ::listen(fd.get(), 1) != 0)) {
    return {};
  }
  return fd;
}

std::string frame(protocol::FrameType type, std::string_view payload) {
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), 1, type}, head);
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()).append(payload);
}

Task<void> take(Watched& guest, bool& taken, Loop& loop) {
  std::string id = "id";
  const Result<RoomSockets> sockets = co_await take_sockets(guest, std::move(id));
  taken = sockets.ok();
  loop.stop();
}

// Whether these are taken from a guest that sends them.
bool are_taken(const std::vector<int>& sockets, std::uint32_t present) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) {
    return false;
  }
  const UniqueFd guest(ends[1]);
  std::array<unsigned char, 8> fields{};
  protocol::Writer writer(fields);
  writer.u32(0);
  writer.u32(present);
  const std::string welcome = frame(protocol::FrameType::kWelcome, {});
  const std::string answer = frame(protocol::FrameType::kNetworkSockets,
                                   {reinterpret_cast<const char*>(fields.data()), fields.size()});
  if (::send(guest.get(), welcome.data(), welcome.size(), 0) < 0 ||
      send_with(guest.get(), answer, sockets, 0) < 0) {
    return false;
  }
  Loop loop;
  Watched host(loop, UniqueFd(ends[0]));
  bool taken = false;
  spawn(take(host, taken, loop));
  // Stopped, it does not wait.
  return loop.run().ok() && taken;
}

std::vector<int> numbers(const std::vector<UniqueFd>& all) {
  std::vector<int> result;
  for (const UniqueFd& one : all) {
    result.push_back(one.get());
  }
  return result;
}

// The number of the first thing that is not as it should be; 0: everything is.
int check() {
  if (!enter_new_network()) {
    return 1;
  }
  std::vector<UniqueFd> theirs;
  for (const Kind& kind : kRight) {
    theirs.push_back(make(kind));
  }
  UniqueFd any = make(kRight[0], INADDR_ANY);
  UniqueFd other_port = make({AF_INET, SOCK_STREAM, 61002});
  if (!enter_new_network()) {
    return 2;
  }
  std::vector<UniqueFd> own;
  for (const Kind& kind : kRight) {
    own.push_back(make(kind));
  }
  if (!enter_new_network()) {
    return 3;
  }
  std::vector<UniqueFd> here;
  for (const Kind& kind : kRight) {
    here.push_back(make(kind));
  }
  const auto without = [&](std::size_t which, int instead) {
    std::vector<int> list = numbers(theirs);
    list[which] = instead;
    return are_taken(list, kAll);
  };
  std::vector<int> fewer = numbers(theirs);
  fewer.pop_back();
  std::vector<int> more = numbers(theirs);
  more.push_back(other_port.get());
  const std::array<bool, 10> held = {
      are_taken(numbers(theirs), kAll),  // the control
      are_taken(numbers(own), kAll),     // another sandbox's are all right as well
      !are_taken(numbers(here), kAll),   // those of the network that this process is in
      !without(0, here[0].get()),        // one of them
      !without(4, own[4].get()),         // of two networks
      !without(0, any.get()),            // not at the loopback address
      !without(0, other_port.get()),     // at another port
      !without(0, theirs[2].get()),      // of another type
      !are_taken(fewer, kAll) && !are_taken(fewer, kAll >> 1),
      !are_taken(more, kAll),
  };
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (!held[i]) {
      return 10 + static_cast<int>(i);
    }
  }
  return 0;
}

TEST(GuestSockets, AreTakenFromOneNetworkThatIsNotOurs) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(check());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see check()";
}

}  // namespace
}  // namespace carrel::egress
