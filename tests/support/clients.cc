#include "support/clients.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace carrel::test {

void ClientsTest::SetUp() {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "an internet of the test's own takes root";
  }
  CarrelTest::SetUp();
  internet_.emplace(place().work(As::kRoot) + "/internet");
}

void ClientsTest::TearDown() {
  if (internet_.has_value()) {
    internet_.reset();
    CarrelTest::TearDown();
  }
}

Run ClientsTest::client(const std::string& network, const std::string& script,
                        const std::vector<std::string>& options) {
  std::vector<std::string> words = {"run", "--timeout", "200", "--network", network};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "bash", "-c",
                             "set -e\ncat > /tmp/ca.pem <<'END'\n" +
                                 internet_->authority_certificate() + "END\n" + script});
  return carrel(words, {.timeout_seconds = 220});
}

void ClientsTest::publish(const std::string& path, const std::string& text) {
  const std::filesystem::path file = internet_->files() + "/" + path;
  std::filesystem::create_directories(file.parent_path());
  write_text(file, text);
}

void ClientsTest::do_outside(const std::string& command) {
  EXPECT_EQ(std::system(("exec >/dev/null 2>&1; " + command).c_str()), 0) << command;
}

bool ClientsTest::is_served(const std::string& address, int port) {
  const std::string look =
      "exec 2>/dev/null; bash -c '</dev/tcp/" + address + "/" + std::to_string(port) + "'";
  return eventually(std::chrono::seconds(20), [&] { return std::system(look.c_str()) == 0; });
}

}  // namespace carrel::test
