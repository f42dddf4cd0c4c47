#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/fixture.h"
#include "support/internet.h"

namespace carrel::test {

// A test with an internet of its own, in which real clients run in sandboxes.
class ClientsTest : public CarrelTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A script of bash in a sandbox with this network. The certificate of the internet's authority
  // is in /tmp/ca.pem.
  Run client(const std::string& network, const std::string& script,
             const std::vector<std::string>& options = {});
  // A file at /files/PATH of the internet's web servers.
  void publish(const std::string& path, const std::string& text);
  // A command on the host; fails the test when it fails.
  static void do_outside(const std::string& command);
  // Whether the port of a server in the internet is open within ten seconds.
  [[nodiscard]] static bool is_served(const std::string& address, int port);
  [[nodiscard]] Internet& internet() { return *internet_; }

 private:
  std::optional<Internet> internet_;
};

}  // namespace carrel::test
