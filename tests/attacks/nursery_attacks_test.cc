// The same probes in a sandbox whose first process comes from the keeper's nursery: what the host's
// tree, network and processes were there must be gone as in any other.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "attacks/attack_test.h"
#include "attacks/probe_table.h"
#include "base/unique_fd.h"
#include "support/box.h"
#include "support/nursery.h"

namespace carrel::test {
namespace {

class NurseryAttack : public AttackTest {};
CARREL_AS_BOTH(NurseryAttack);

TEST_P(NurseryAttack, EveryProbeWithTheDefaultPolicyFails) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  int probes = 0;
  for (const ProbeCase& one : probe_cases()) {
    if (!one.options.empty()) {
      continue;
    }
    SCOPED_TRACE(one.name);
    std::vector<std::string> arguments = one.arguments;
    if (one.name.starts_with("A15_")) {
      arguments = {path_in_its_file_system("/usr"), path_in_its_file_system("/etc"),
                   place().home(GetParam()), place().work(GetParam())};
    } else if (one.name.starts_with("E14_Listeners")) {
      arguments = canaries().listeners();
    }
    EXPECT_TRUE(held(probe(one.name, arguments)));
    ++probes;
  }
  EXPECT_GE(probes, 40);
}

// The positive control: these probes do run in such a sandbox.
TEST_P(NurseryAttack, SandboxesOfThisTestComeFromTheNursery) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  Process process(launch({"run", "--", "bash", "-c", "echo up; read -r line"}));
  ASSERT_TRUE(process.wait_for_output("up\n", std::chrono::seconds(20)));
  EXPECT_NE(lent_process(), 0);
}

TEST_P(NurseryAttack, NoSocketOfTheNurseryIsWithinReach) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  // No descriptor beyond the three, no mount of the state directory, no process but its own.
  const Run run = script(
      "ls /proc/self/fd | wc -l; grep -c nursery /proc/self/mountinfo /proc/net/unix; "
      "cat /proc/[0-9]*/comm | grep -c nursery; ls /proc/1/fd 2>&1 | wc -l");
  EXPECT_EQ(run.out, "4\n/proc/self/mountinfo:0\n/proc/net/unix:0\n0\n1\n") << run.err;
}

// A network of a sandbox that this test holds, so that the kernel gives its number to no other.
struct HeldNetwork {
  UniqueFd descriptor;
  std::string name;  // what a process in it sees as its own
};

// Born in that network, held here.
UniqueFd socket_in(int network) {
  UniqueFd socket;
  std::thread visitor([&] {
    if (::setns(network, CLONE_NEWNET) == 0) {
      socket.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    }
  });
  visitor.join();
  return socket;
}

class NurseryNetworks : public NurseryAttack {
 protected:
  // That of a sandbox in which this was run.
  HeldNetwork used_for(const std::string& what, const std::string& policy = "none") {
    EXPECT_TRUE(eventually(std::chrono::seconds(5), [] { return lent_process() == 0; }))
        << "the one before has not ended";
    Process process(
        launch({"run", "--network", policy, "--", "bash", "-c", what + "; echo up; read -r line"}));
    EXPECT_TRUE(process.wait_for_output("up\n", std::chrono::seconds(20)));
    const std::string path = "/proc/" + std::to_string(lent_process()) + "/ns/net";
    HeldNetwork network{UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), {}};
    struct stat info{};
    EXPECT_EQ(::fstat(network.descriptor.get(), &info), 0) << path;
    network.name = "net:[" + std::to_string(info.st_ino) + "]";
    return network;
  }

  // Whether one of the next sandboxes gets it. The first of them has a network that was given to it
  // before the last one ended.
  bool is_given_again(const HeldNetwork& network) {
    for (int i = 0; i < 6; ++i) {
      const Run run = script("readlink /proc/self/ns/net; grep -w lo: /proc/net/dev");
      EXPECT_TRUE(run.out.starts_with("net:[")) << run.out << run.err;
      EXPECT_NE(run.out.find("lo:       0       0    0"), std::string::npos) << run.out;
      if (run.out.starts_with(network.name)) {
        return true;
      }
    }
    return false;
  }
};
CARREL_AS_BOTH(NurseryNetworks);

TEST_P(NurseryNetworks, OneThatNobodyLeftAMarkOnIsGivenAgain) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  EXPECT_TRUE(is_given_again(used_for("true")));
}

TEST_P(NurseryNetworks, OneWithAMarkOfASandboxIsNobodyElses) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  constexpr std::string_view kMarks[] = {
      "echo x >/dev/udp/127.0.0.1/9",
      "(exec 3<>/dev/tcp/127.0.0.1/9)",
      "(echo x >/dev/udp/192.0.2.1/9)",
      "(exec 3<>/dev/tcp/::1/9)",
      // A label of IPv6 that outlives its socket and sends nothing.
      "python3 -c 'import socket, struct; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); "
      "s.setsockopt(41, 32, socket.inet_pton(socket.AF_INET6, \"::1\") + "
      "struct.pack(\"!I\", 0x12345) + struct.pack(\"=BBHHH\", 0, 255, 1, 30, 30) + bytes(4))'",
  };
  for (const std::string_view mark : kMarks) {
    SCOPED_TRACE(std::string(mark));
    EXPECT_FALSE(is_given_again(used_for(std::string(mark) + " 2>/dev/null")));
  }
}

// A socket of it that lives on outside: its sandbox is gone, and it is not.
TEST_P(NurseryNetworks, OneWithASocketThatSomebodyHoldsIsNobodyElses) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  const HeldNetwork network = used_for("true");
  UniqueFd socket = socket_in(network.descriptor.get());
  ASSERT_TRUE(socket.valid());
  EXPECT_FALSE(is_given_again(network));
}

constexpr char kWayOut[] = "allow=tcp:192.0.2.9:80";

// The networks that the nursery has a descriptor of.
std::set<std::string> networks_of_nursery() {
  std::set<std::string> found;
  std::error_code failed;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(nursery()) + "/fd", failed)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), failed).string();
    if (target.starts_with("net:[")) {
      found.insert(target);
    }
  }
  return found;
}

TEST_P(NurseryNetworks, OneWithAWayOutIsMadeAhead) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  (void)used_for("true", kWayOut);  // from now on the nursery has one
  EXPECT_TRUE(eventually(std::chrono::seconds(10), [&] {
    const std::set<std::string> ready = networks_of_nursery();
    return ready.contains(used_for("true", kWayOut).name);
  }));
}

// It is captive from its first moment: its sockets are held outside, and nothing else is there.
TEST_P(NurseryNetworks, OneWithAWayOutHoldsLikeOneThatItsSandboxMade) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  for (int i = 0; i < 3; ++i) {
    const Run run = carrel({"run", "--network", kWayOut, "--", "bash", "-c",
                            "(echo x >/dev/udp/192.0.2.1/9) 2>/dev/null || echo refused; "
                            "exec 3<>/dev/tcp/169.254.169.254/80; "
                            "printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; head -n 1 <&3"});
    EXPECT_EQ(run.out, "refused\nHTTP/1.1 403 Forbidden\r\n") << run.err;
  }
}

TEST_P(NurseryNetworks, OneWithAWayOutIsNobodyElses) {
  const Box box(GetParam());
  ASSERT_NE(wait_for_nursery(GetParam()), 0);
  (void)used_for("true", kWayOut);
  std::vector<HeldNetwork> held;
  std::set<std::string> names;
  for (int i = 0; i < 4; ++i) {
    held.push_back(used_for("true", kWayOut));
    EXPECT_TRUE(names.insert(held.back().name).second) << "a sandbox got the network of another";
  }
  for (int i = 0; i < 4; ++i) {
    const Run run = script("readlink /proc/self/ns/net");
    EXPECT_FALSE(names.contains(run.out.substr(0, run.out.find('\n')))) << run.out;
  }
}

}  // namespace
}  // namespace carrel::test
