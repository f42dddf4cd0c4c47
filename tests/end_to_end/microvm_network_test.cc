// What may leave a sandbox in a virtual machine: the same egress process, over the trunk. A machine
// is emulated where KVM does not work, so these tests are few and each does much.
#include <signal.h>

#include <string>
#include <vector>

#include "support/box.h"
#include "support/machines.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

// What may leave a machine, against an internet of the test's own.
class MicrovmNetwork : public NetworkedTest {
 protected:
  void SetUp() override {
    NetworkedTest::SetUp();
    use_saved_machines();
    plant_saved_machine(GetParam());
  }
  void TearDown() override {
    await_savers();
    NetworkedTest::TearDown();
  }
  static std::vector<std::string> with(const std::string& network) {
    return {"--backend", "microvm", "--network", network};
  }
  static std::string inside(const Box& box, const std::string& code) {
    const Run run = box.sh("python3 - <<'END'\n" + code + "END", {}, {.timeout_seconds = 90});
    return run.out + run.err;
  }
};
CARREL_AS_BOTH(MicrovmNetwork);

TEST_P(MicrovmNetwork, TheEgressProcessDecides) {
  const Box box(GetParam(), with("allow=allowed.test,http:allowed.test,tcp:allowed.test:7000"));
  const std::string allowed =
      inside(box, fetching("https://allowed.test/x") + fetching("http://allowed.test/y"));
  EXPECT_NE(allowed.find("hello from allowed.test /x"), std::string::npos) << allowed;
  EXPECT_NE(allowed.find("hello from allowed.test /y"), std::string::npos) << allowed;
  // Other names are not found, and nobody is asked for them; other addresses are not reached.
  const std::string others =
      inside(box, fetching("https://evil.test/") + fetching("http://169.254.169.254/") +
                      fetching("http://10.1.2.3/") + fetching("https://[2001:db8::1]/"));
  EXPECT_EQ(others.find("hello"), std::string::npos) << others;
  for (const std::string& query : internet_->queries()) {
    EXPECT_EQ(query.find("evil"), std::string::npos) << query;
  }
  // Each side can end what it says, and still hear; TLS for another name is cut off; a proxy.
  const std::string raw =
      inside(box,
             "import socket, ssl\n"
             "s = socket.create_connection(('allowed.test', 7000), 10)\n"
             "s.sendall(b'ping' * 50000)\n"
             "got = b''\n"
             "while len(got) < 200000: got += s.recv(65536)\n"
             "s.shutdown(socket.SHUT_WR)\n"
             "print('echoed', got == b'ping' * 50000, s.recv(10))\n"
             "s = socket.create_connection(('allowed.test', 443), 10)\n"
             "try:\n"
             "    ssl._create_unverified_context().wrap_socket(s, server_hostname='evil.test')\n"
             "    print('through')\n"
             "except OSError as error:\n"
             "    print('cut')\n"
             "s = socket.create_connection(('127.0.0.1', 3128), 10)\n"
             "s.sendall(b'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n')\n"
             "print(s.recv(12))\n"
             "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "try:\n"
             "    s.connect(('192.0.2.1', 9)); s.send(b'x'); s.send(b'x')\n"
             "    print('datagrams')\n"
             "except OSError:\n"
             "    print('refused')\n");
  EXPECT_EQ(raw, "echoed True b''\ncut\nb'HTTP/1.1 403'\nrefused\n");
  // It is logged, counted and can be changed.
  const Run log = carrel({"net", "log", box.id(), "--json"});
  EXPECT_NE(log.out.find("evil.test"), std::string::npos) << log.out << log.err;
  ASSERT_EQ(carrel({"net", "set", box.id(), "allow=a.wild.test"}).status, 0);
  const std::string changed =
      inside(box, fetching("https://allowed.test/") + fetching("https://a.wild.test/"));
  EXPECT_EQ(changed.find("hello from allowed"), std::string::npos) << changed;
  EXPECT_NE(changed.find("hello from a.wild.test"), std::string::npos) << changed;
}

TEST_P(MicrovmNetwork, WithoutAnEgressProcessNothingLeaves) {
  const Box box(GetParam(), with("full"));
  ASSERT_NE(inside(box, fetching("https://allowed.test/")).find("hello"), std::string::npos);
  std::vector<HostProcess> all = processes_of("egress");
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
  // The next one finds the machine.
  EXPECT_TRUE(eventually(seconds(60), [&] {
    return inside(box, fetching("https://allowed.test/")).find("hello") != std::string::npos;
  }));
}

TEST_P(MicrovmNetwork, AOneShotHasOneToo) {
  const std::string code = fetching("https://allowed.test/z") + fetching("https://evil.test/");
  const Run run = carrel({"run", "--backend", "microvm", "--network", "allow=allowed.test",
                          "--timeout", "150", "--", "python3", "-c", code},
                         {.timeout_seconds = 200});
  EXPECT_NE(run.out.find("hello from allowed.test /z"), std::string::npos) << run.out << run.err;
  EXPECT_NE(run.out.find("failed"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace carrel::test
