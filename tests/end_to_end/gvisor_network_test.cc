// What may leave a sandbox behind gVisor: the same egress process, with sockets of the captive
// network that gVisor's kernel is in.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

class GvisorNetwork : public NetworkedTest {
 protected:
  static std::vector<std::string> with(const std::string& network) {
    return {"--backend", "oci", "--runtime", "runsc", "--network", network};
  }
};
CARREL_AS_BOTH(GvisorNetwork);

TEST_P(GvisorNetwork, TheEgressProcessDecides) {
  const Box box(GetParam(), with(kAllowed));
  expect_the_egress_process_decides(box);
}

// Its kernel's sockets are the host's kernel's: in another network, and of no other kind.
TEST_P(GvisorNetwork, NothingOfTheHostsIsReachedThroughItsSockets) {
  // A socket without a place in a file system, in the network of the host.
  const int here = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string name = "carrel-gvisor-" + std::to_string(::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(here, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(here, 1), 0);
  const Box box(GetParam(), with("full"));
  const std::string said = inside(
      box,
      "import socket\n"
      "def attempt(what, work):\n"
      "    try:\n"
      "        print(what, 'THROUGH', work())\n"
      "    except OSError as error:\n"
      "        print(what, 'refused')\n"
      "def connect(family, kind, place):\n"
      "    s = socket.socket(family, kind)\n"
      "    s.settimeout(5)\n"
      "    s.connect(place)\n"
      "    return s\n"
      "attempt('abstract', lambda: connect(1, 1, b'\\0" +
          name +
          "'))\n"
          "attempt('vsock', lambda: connect(40, 1, (2, 1024)))\n"
          "attempt('packet', lambda: socket.socket(17, 3, 0x300))\n"
          "attempt('raw', lambda: socket.socket(2, 3, 1))\n"
          "def netlink(protocol, kind, payload):\n"
          "    s = socket.socket(16, 3, protocol)\n"
          "    s.settimeout(5)\n"
          "    s.bind((0, 0))\n"
          "    s.send((16 + len(payload)).to_bytes(4, 'little') + kind.to_bytes(2, 'little')\n"
          "           + (0x405).to_bytes(2, 'little') + bytes(8) + payload)\n"
          "    answer = s.recv(4096)\n"
          "    error = int.from_bytes(answer[16:20], 'little', signed=True)\n"
          "    if error != 0:\n"
          "        raise OSError(-error, 'netlink')\n"
          "    return answer\n"
          "attempt('link', lambda: netlink(0, 16, bytes(16)))\n"
          "attempt('route', lambda: netlink(0, 24, bytes([2]) + bytes(11)))\n"
          "attempt('rules', lambda: netlink(12, 0xa02, bytes([2, 0, 0, 0])))\n");
  ::close(here);
  EXPECT_EQ(said.find("THROUGH"), std::string::npos) << said;
  EXPECT_NE(said.find("rules refused"), std::string::npos) << said;
  const Run interfaces = box.sh("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
  EXPECT_EQ(interfaces.out, "lo\n");
}

// Whoever takes over gVisor's kernel cannot change the rules of the network that it is in.
TEST_P(GvisorNetwork, NobodyOfGvisorsHasRightsOverTheNetwork) {
  const Box box(GetParam(), with("allow=allowed.test"));
  const std::vector<HostProcess> porches = processes_of("porch");
  ASSERT_FALSE(porches.empty());
  const auto network_of = [](pid_t pid) {
    std::error_code failed;
    return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", failed)
        .string();
  };
  constexpr unsigned long long kRights = 3ULL << 12U;  // CAP_NET_ADMIN and CAP_NET_RAW
  int seen = 0;
  for (const HostProcess& one : descendants()) {
    const bool porch = std::any_of(porches.begin(), porches.end(),
                                   [&](const HostProcess& other) { return other.pid == one.pid; });
    if (!porch && network_of(one.pid) == network_of(porches.front().pid)) {
      const std::string held = status_field(one.pid, "CapPrm");
      EXPECT_EQ(std::stoull("0" + held, nullptr, 16) & kRights, 0U) << one.name << " " << held;
      ++seen;
    }
  }
  EXPECT_GT(seen, 0);
}

TEST_P(GvisorNetwork, WithoutAnEgressProcessNothingLeavesAndTheNextOneFindsIt) {
  const Box box(GetParam(), with("full"));
  ASSERT_NE(inside(box, fetching("https://allowed.test/")).find("hello"), std::string::npos);
  const std::vector<HostProcess> all = processes_of("egress");
  ASSERT_FALSE(all.empty());
  for (const HostProcess& one : all) {  // held, and not ended: nobody brings it back
    ASSERT_GT(one.pid, 1);
    ASSERT_EQ(::kill(one.pid, SIGSTOP), 0);
  }
  const std::size_t before = internet_->requests().size();
  const std::string nothing = inside(box, fetching("https://allowed.test/"));
  EXPECT_EQ(nothing.find("hello"), std::string::npos) << nothing;
  EXPECT_EQ(internet_->requests().size(), before);
  for (const HostProcess& one : all) {
    ASSERT_EQ(::kill(one.pid, SIGKILL), 0);
  }
  EXPECT_TRUE(eventually(seconds(60), [&] {
    return inside(box, fetching("https://allowed.test/")).find("hello") != std::string::npos;
  }));
}

// Whoever gives the sockets is replaced when somebody ends it, and the network is served again.
TEST_P(GvisorNetwork, WhoGivesItsSocketsIsReplaced) {
  const Box box(GetParam(), with("allow=allowed.test"));
  const std::vector<HostProcess> porches = processes_of("porch");
  int ended = 0;
  for (const HostProcess& one : porches) {
    const bool below = std::any_of(porches.begin(), porches.end(), [&](const HostProcess& above) {
      return above.pid == one.parent;
    });
    if (below) {
      ASSERT_GT(one.pid, 1);
      ASSERT_EQ(::kill(one.pid, SIGKILL), 0);
      ++ended;
    }
  }
  EXPECT_EQ(ended, 2) << "one for the door and one for the network";
  EXPECT_TRUE(eventually(seconds(30), [&] {
    return inside(box, fetching("https://allowed.test/")).find("hello") != std::string::npos;
  }));
}

TEST_P(GvisorNetwork, AOneShotHasOneToo) {
  const std::string code = fetching("https://allowed.test/z") + fetching("https://evil.test/");
  const Run run = carrel({"run", "--backend", "oci", "--runtime", "runsc", "--network",
                          "allow=allowed.test", "--", "python3", "-c", code},
                         {.timeout_seconds = 60});
  EXPECT_NE(run.out.find("hello from allowed.test /z"), std::string::npos) << run.out << run.err;
  EXPECT_NE(run.out.find("failed"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace carrel::test
