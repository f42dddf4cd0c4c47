// Servers in a virtual machine, reached from the host. A machine is emulated where KVM does not
// work, so there is one test that does much.
#include <memory>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/fixture.h"
#include "support/ports.h"

namespace carrel::test {
namespace {

class MicrovmPorts : public WithServers<CarrelTest> {};
CARREL_AS_BOTH(MicrovmPorts);

// No socket comes out of a machine: a process inside carries, over the trunk.
TEST_P(MicrovmPorts, AServerInsideIsReachedByManyAtOnce) {
  const Box box(GetParam(), {"--backend", "microvm"});
  Process published(launch({"port", box.id(), "8080"}));
  const int port = port_of(published);
  TcpClient early(port);
  EXPECT_EQ(early.read(), "");
  EXPECT_TRUE(early.failed());
  auto server = serve(box, echo_server("AF_INET", "127.0.0.1"));
  const std::string much(300'000, 'm');
  std::vector<std::unique_ptr<TcpClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<TcpClient>(port));
    clients.back()->send(std::to_string(i) + "\n");
  }
  for (int i = 3; i >= 0; --i) {
    TcpClient& client = *clients[static_cast<std::size_t>(i)];
    EXPECT_EQ(client.read_line(), std::to_string(i) + "\n");
  }
  clients.front()->send(much);
  clients.front()->finish();
  EXPECT_TRUE(clients.front()->read() == much + "end");
  EXPECT_FALSE(clients.front()->failed());
  EXPECT_EQ(box.sh("echo here").out, "here\n");
}

}  // namespace
}  // namespace carrel::test
