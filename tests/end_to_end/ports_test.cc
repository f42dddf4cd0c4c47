#include "support/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/box.h"
#include "support/networked.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

class Ports : public WithServers<CarrelTest> {};
CARREL_AS_BOTH(Ports);
// An address of this host that others could reach is there only with an internet of the test's own.
class PublishedPorts : public WithServers<NetworkedTest> {};
CARREL_AS_BOTH(PublishedPorts);

TEST_P(Ports, R115_AWebServerInsideIsReachedFromThisHost) {
  const Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir site; echo 'made inside' > site/index.html").status, 0);
  auto server = serve(box,
                      "import http.server, os\n"
                      "os.chdir('/workspace/site')\n"
                      "s = http.server.ThreadingHTTPServer(('127.0.0.1', 8080), "
                      "http.server.SimpleHTTPRequestHandler)\n"
                      "print('listening', flush=True)\n"
                      "s.serve_forever()\n");
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  EXPECT_EQ(published.out(),
            "http://127.0.0.1:" + std::to_string(port) + " -> " + box.id() + ":8080\n");
  TcpClient client(port);
  client.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.read(), HasSubstr("made inside"));
}

TEST_P(Ports, ItIsToldToProgramsAtThePortThatTheyChose) {
  const Box box(GetParam());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  int port = 0;
  {
    Process any(launch({"port", box.id(), "8080"}));
    port = port_of(any);
  }
  Process published(
      launch({"port", "--json", "--host-port", std::to_string(port), box.id(), "8080"}));
  ASSERT_TRUE(published.wait_for_output("\n", kPortPatience)) << published.err();
  const auto told = nlohmann::json::parse(published.out(), nullptr, false);
  EXPECT_EQ(told["id"], box.id());
  EXPECT_EQ(told["port"], 8080);
  EXPECT_EQ(told["host_port"], port);
  EXPECT_EQ(told["url"], "http://127.0.0.1:" + std::to_string(port));
  TcpClient client(port);
  client.send("x");
  client.finish();
  EXPECT_EQ(client.read(), "xend");
  // Nobody else can have it.
  const Run second = carrel({"port", "--host-port", std::to_string(port), box.id(), "8080"});
  EXPECT_NE(second.status, 0);
  EXPECT_THAT(second.err, HasSubstr("choose another --host-port"));
}

TEST_P(Ports, FiftyMebibytesPassBothWaysAndAnEndIsPassedOnAlone) {
  const Box box(GetParam());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  Process published(launch({"port", box.id(), "8080"}));
  TcpClient client(port_of(published));
  std::string sent(50U << 20, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<char>(i * 2654435761U >> 13);
  }
  std::thread writer([&] {
    client.send(sent);
    client.finish();
  });
  const std::string got = client.read();
  writer.join();
  // What was said after the end of the other side came, too.
  EXPECT_TRUE(got == sent + "end") << got.size();
  EXPECT_FALSE(client.failed());
}

TEST_P(Ports, FiftyConnectionsAreCarriedAtOnce) {
  const Box box(GetParam());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  std::vector<std::unique_ptr<TcpClient>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<TcpClient>(port));
    clients.back()->send("number " + std::to_string(i) + "\n");
  }
  for (int i = 49; i >= 0; --i) {
    EXPECT_EQ(clients[static_cast<std::size_t>(i)]->read_line(),
              "number " + std::to_string(i) + "\n");
  }
}

TEST_P(Ports, AServerOfTheSixthVersionIsReached) {
  const Box box(GetParam());
  if (box.sh("cat /proc/net/if_inet6").out.empty()) {
    GTEST_SKIP() << "this kernel has no IPv6";
  }
  auto server = serve(box, echo_server("AF_INET6", "::1"));
  Process published(launch({"port", box.id(), "8080"}));
  TcpClient client(port_of(published));
  client.send("six");
  client.finish();
  EXPECT_EQ(client.read(), "sixend");
}

TEST_P(Ports, WhereNobodyListensTheClientKnowsAtOnceAndALaterServerIsReached) {
  const Box box(GetParam());
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  const auto begun = Clock::now();
  TcpClient early(port);
  early.send("x");
  EXPECT_EQ(early.read(), "");
  EXPECT_TRUE(early.failed());
  EXPECT_LT(Clock::now() - begun, patient(std::chrono::seconds(3)));
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  TcpClient late(port);
  late.send("x");
  late.finish();
  EXPECT_EQ(late.read(), "xend");
  published.send(SIGTERM);
  EXPECT_THAT(published.wait(kPortPatience).err, HasSubstr("nothing listens there"));
}

TEST_P(Ports, WrongPortsAndAddressesAreRefused) {
  const Box box(GetParam());
  for (const char* port : {"0", "65536", "-1", "http", "80x", ""}) {
    EXPECT_NE(carrel({"port", box.id(), port}).status, 0) << port;
    EXPECT_NE(carrel({"port", box.id(), "8080", "--host-port", port}).status, 0) << port;
  }
  EXPECT_NE(carrel({"port", box.id(), "8080", "--bind", "everywhere"}).status, 0);
  EXPECT_NE(carrel({"port", "0123456789abcdef", "8080"}).status, 0);
}

TEST_P(Ports, R115_ABindThatOthersReachHasToBeSaid) {
  const Box box(GetParam());
  for (const char* address : {"0.0.0.0", "::", "11.0.0.2"}) {
    const Run run = carrel({"port", box.id(), "8080", "--bind", address});
    EXPECT_NE(run.status, 0) << address;
    EXPECT_THAT(run.err, HasSubstr("--allow-remote"));
  }
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  Process published(launch({"port", box.id(), "8080", "--bind", "0.0.0.0", "--allow-remote"}));
  TcpClient client(port_of(published), "127.0.0.2");
  client.send("x");
  client.finish();
  EXPECT_EQ(client.read(), "xend");
}

TEST_P(Ports, AnEndedSandboxEndsItWithALine) {
  const Box box(GetParam());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  Process published(launch({"port", box.id(), "8080"}));
  TcpClient client(port_of(published));
  client.send("x\n");
  EXPECT_EQ(client.read_line(), "x\n");
  EXPECT_EQ(box.remove().status, 0);
  const Run run = published.wait(kPortPatience);
  EXPECT_FALSE(run.timed_out);
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("sandbox " + box.id() + " has ended"));
  EXPECT_EQ(client.read(), "");
}

TEST_P(Ports, AServerThatTakesNobodyHindersNeitherTheSandboxNorOthers) {
  const Box box(GetParam());
  auto server = serve(box,
                      "import socket, time\n"
                      "s = socket.socket()\n"
                      "s.bind(('127.0.0.1', 8080))\n"
                      "s.listen(0)\n"
                      "print('listening', flush=True)\n"
                      "time.sleep(60)\n");
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  std::vector<std::unique_ptr<TcpClient>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<TcpClient>(port));
  }
  const Run run = box.sh("echo here");
  EXPECT_EQ(run.out, "here\n");
  EXPECT_LT(run.duration, patient(std::chrono::seconds(5)));
}

TEST_P(PublishedPorts, R115_NoOtherInterfaceLeadsThere) {
  const Box box(GetParam());
  auto server = serve(box, echo_server("AF_INET", "0.0.0.0"));
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  EXPECT_TRUE(TcpClient(port).connected());
  EXPECT_FALSE(TcpClient(port, "11.0.0.2").connected());
}

TEST_P(PublishedPorts, D41_AnotherSandboxDoesNotReachIt) {
  const Box box(GetParam());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  Process published(launch({"port", box.id(), "8080", "--bind", "0.0.0.0", "--allow-remote"}));
  const int port = port_of(published);
  TcpClient control(port, "11.0.0.2");
  control.send("x");
  control.finish();
  ASSERT_EQ(control.read(), "xend");
  for (const char* network : {"none", "full"}) {
    for (const char* address : {"127.0.0.1", "11.0.0.2", "gateway.test", "loop.test"}) {
      const Run run = python(
          "import socket\n"
          "try:\n"
          "    s = socket.create_connection(('" +
              std::string(address) + "', " + std::to_string(port) +
              "), 5)\n"
              "    s.sendall(b'x')\n"
              "    s.shutdown(1)\n"
              "    print('got', s.recv(10))\n"
              "except OSError as error:\n"
              "    print('refused', error)\n",
          {"--network", network});
      EXPECT_THAT(run.out, testing::Not(HasSubstr("xend"))) << address << " " << run.out;
      EXPECT_THAT(run.out, testing::AnyOf(StartsWith("refused"), StartsWith("got b''")));
    }
  }
}

}  // namespace
}  // namespace carrel::test
