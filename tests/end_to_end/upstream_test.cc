#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Where the internet is reached through a proxy of the operator's.
class UpstreamProxy : public NetworkedTest {
 protected:
  void start_proxy(const std::string& login = {}) {
    record_ = place().work(As::kRoot) + "/proxied";
    Launch launch;
    launch.program = "/usr/bin/python3";
    launch.arguments = {"-B", CARREL_PARENT_PROXY_SCRIPT, record_};
    if (!login.empty()) {
      launch.arguments.push_back(login);
    }
    launch.environment = {"PATH=/usr/bin:/bin"};
    launch.directory = "/";
    proxy_ = std::make_unique<Process>(launch);
    ASSERT_TRUE(proxy_->wait_for_output("\n", std::chrono::seconds(20))) << proxy_->err();
    std::istringstream ports(proxy_->out());
    ports >> http_ >> socks_;
  }
  void TearDown() override {
    proxy_.reset();
    NetworkedTest::TearDown();
  }
  // The operator's own settings.
  void configure(const std::string& text) const {
    const std::string directory = place().home(GetParam()) + "/net";
    std::filesystem::create_directories(directory);
    write_text(directory + "/egress.toml", text, 0600);
    for (const std::string& path : {place().home(GetParam()), directory, directory + "/egress.toml"}) {
      place().give(path, GetParam());
    }
    ::chmod(place().home(GetParam()).c_str(), 0700);
    ::chmod(directory.c_str(), 0700);
  }
  [[nodiscard]] std::string http(const std::string& login = {}) const {
    return "proxy = \"http://" + login + "127.0.0.1:" + std::to_string(http_) + "\"\n";
  }
  [[nodiscard]] std::string socks(const std::string& login = {}) const {
    return "proxy = \"socks5://" + login + "127.0.0.1:" + std::to_string(socks_) + "\"\n";
  }
  [[nodiscard]] std::vector<std::string> proxied() const {
    std::vector<std::string> lines;
    std::istringstream text(read_text(record_).value_or(""));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(line);
    }
    return lines;
  }
  [[nodiscard]] Run fetch(const std::string& url, const std::string& network) {
    return python(fetching(url), {"--network", network});
  }

  std::unique_ptr<Process> proxy_;
  std::string record_;
  int http_ = 0;
  int socks_ = 0;
};
CARREL_AS_BOTH(UpstreamProxy);

TEST_P(UpstreamProxy, AnHttpProxyIsToldTheNameAndNobodyIsAskedForIt) {
  start_proxy();
  configure(http());
  EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out,
              HasSubstr("hello from allowed.test /x"));
  EXPECT_THAT(fetch("http://allowed.test/y", "allow=http:allowed.test").out,
              HasSubstr("hello from allowed.test /y"));
  EXPECT_THAT(proxied(), testing::ElementsAre("http CONNECT allowed.test:443 None",
                                              "http CONNECT allowed.test:80 None"));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(UpstreamProxy, ASocksProxyIsToldTheName) {
  start_proxy();
  configure(socks());
  EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out, HasSubstr("hello"));
  EXPECT_THAT(proxied(), testing::ElementsAre("socks allowed.test:443 None"));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(UpstreamProxy, ALoginIsGivenToBothKinds) {
  start_proxy("me:secret");
  for (const std::string& settings : {http("me:secret@"), socks("me:secret@")}) {
    configure(settings);
    EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out, HasSubstr("hello"));
  }
  EXPECT_THAT(proxied(), testing::ElementsAre("http CONNECT allowed.test:443 me:secret",
                                              "socks allowed.test:443 me:secret"));
  configure(http());
  EXPECT_THAT(fetch("http://allowed.test/x", "allow=http:allowed.test").out,
              testing::AllOf(HasSubstr("403"), HasSubstr("answers 407")));
}

TEST_P(UpstreamProxy, ThePolicyStillDecides) {
  start_proxy();
  configure(http());
  EXPECT_THAT(fetch("https://evil.test/", "allow=allowed.test").out, HasSubstr("failed"));
  for (const char* url : {"http://169.254.169.254/", "http://10.1.2.3/", "http://localhost.:80/",
                          "http://127.0.0.1:80/", "http://11.0.0.2/"}) {
    EXPECT_THAT(fetch(url, "full").out, HasSubstr("failed")) << url;
  }
  EXPECT_THAT(proxied(), IsEmpty());
  EXPECT_THAT(internet_->requests(), IsEmpty());
  // The control.
  EXPECT_THAT(fetch("http://11.1.1.1/", "full").out, HasSubstr("hello"));
  EXPECT_THAT(proxied(), Contains(HasSubstr("11.1.1.1:80")));
}

TEST_P(UpstreamProxy, EveryByteAndAnEndAlonePassThroughIt) {
  start_proxy();
  for (const std::string& settings : {http(), socks()}) {
    configure(settings);
    const Run run = python(
        "import socket\n"
        "s = socket.create_connection(('allowed.test', 7000), 5)\n"
        "s.sendall(b'ping' * 100000)\n"
        "s.shutdown(socket.SHUT_WR)\n"
        "data = b''\n"
        "while piece := s.recv(65536):\n"
        "    data += piece\n"
        "print(len(data))\n",
        {"--network", "allow=tcp:allowed.test:7000"});
    EXPECT_EQ(run.out, "400000\n") << run.err;
  }
}

TEST_P(UpstreamProxy, AProxyThatIsAwayIsNotGoneAround) {
  configure("proxy = \"http://127.0.0.1:9\"\n");
  EXPECT_THAT(fetch("http://allowed.test/", "allow=http:allowed.test").out,
              testing::AllOf(HasSubstr("403"), HasSubstr("cannot connect to the proxy")));
  EXPECT_THAT(internet_->requests(), IsEmpty());
}

TEST_P(UpstreamProxy, SettingsThatDoNotParseLeaveThoseBeforeAndAreLogged) {
  start_proxy();
  configure(http());
  const Box box(GetParam(), {"--network", "allow=http:allowed.test"});
  const std::string get = "python3 - <<'END'\n" + fetching("http://allowed.test/") + "END";
  ASSERT_THAT(box.sh(get).out, HasSubstr("hello"));
  configure("proxy = \"http://");
  EXPECT_THAT(box.sh(get).out, HasSubstr("hello"));
  EXPECT_THAT(proxied(), testing::SizeIs(2));
  EXPECT_THAT(carrel({"net", "log", box.id()}).out, HasSubstr("what held before goes on"));
  // Changed while it runs.
  configure(socks());
  EXPECT_THAT(box.sh(get).out, HasSubstr("hello"));
  EXPECT_THAT(proxied(), Contains(HasSubstr("socks")));
}

TEST_P(UpstreamProxy, SettingsThatNeverParsedLetNothingOut) {
  configure("proxy = \"http://");
  EXPECT_THAT(fetch("http://allowed.test/", "allow=http:allowed.test").out, HasSubstr("403"));
  EXPECT_THAT(internet_->requests(), IsEmpty());
}

}  // namespace
}  // namespace carrel::test
