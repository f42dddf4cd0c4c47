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

// What the operator says about the way to the internet, with a server of his own beside it.
class UpstreamTest : public NetworkedTest {
 protected:
  void TearDown() override {
    server_.reset();
    NetworkedTest::TearDown();
  }
  [[nodiscard]] std::string record() const { return place().work(As::kRoot) + "/asked"; }
  // Python; the words go to it. Returns what it said first.
  std::string start(std::vector<std::string> words) {
    Launch launch;
    launch.program = "/usr/bin/python3";
    launch.arguments = std::move(words);
    launch.arguments.insert(launch.arguments.begin(), "-B");
    launch.environment = {"PATH=/usr/bin:/bin"};
    launch.directory = "/";
    server_ = std::make_unique<Process>(launch);
    EXPECT_TRUE(server_->wait_for_output("\n", std::chrono::seconds(20))) << server_->err();
    return server_->out();
  }
  // The operator's own settings.
  void configure(const std::string& text) const {
    const std::string directory = place().home(GetParam()) + "/net";
    std::filesystem::create_directories(directory);
    write_text(directory + "/egress.toml", text, 0600);
    for (const std::string& path :
         {place().home(GetParam()), directory, directory + "/egress.toml"}) {
      place().give(path, GetParam());
    }
    ::chmod(place().home(GetParam()).c_str(), 0700);
    ::chmod(directory.c_str(), 0700);
  }
  // What the server was asked for.
  [[nodiscard]] std::vector<std::string> asked() const {
    std::vector<std::string> lines;
    std::istringstream text(read_text(record()).value_or(""));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(line);
    }
    return lines;
  }
  [[nodiscard]] Run fetch(const std::string& url, const std::string& network) {
    return python(fetching(url), {"--network", network});
  }

  std::unique_ptr<Process> server_;
};

// Where the internet is reached through a proxy.
class UpstreamProxy : public UpstreamTest {
 protected:
  void start_proxy(const std::string& login = {}) {
    std::vector<std::string> words = {CARREL_SUPPORT_SCRIPTS "/parent_proxy.py", record()};
    if (!login.empty()) {
      words.push_back(login);
    }
    std::istringstream ports(start(std::move(words)));
    ports >> http_ >> socks_;
  }
  [[nodiscard]] std::string http(const std::string& login = {}) const {
    return "proxy = \"http://" + login + "127.0.0.1:" + std::to_string(http_) + "\"\n";
  }
  [[nodiscard]] std::string socks(const std::string& login = {}) const {
    return "proxy = \"socks5://" + login + "127.0.0.1:" + std::to_string(socks_) + "\"\n";
  }
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
  EXPECT_THAT(asked(), testing::ElementsAre("http CONNECT allowed.test:443 None",
                                            "http CONNECT allowed.test:80 None"));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(UpstreamProxy, ASocksProxyIsToldTheName) {
  start_proxy();
  configure(socks());
  EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out, HasSubstr("hello"));
  EXPECT_THAT(asked(), testing::ElementsAre("socks allowed.test:443 None"));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(UpstreamProxy, ALoginIsGivenToBothKinds) {
  start_proxy("me:secret");
  for (const std::string& settings : {http("me:secret@"), socks("me:secret@")}) {
    configure(settings);
    EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out, HasSubstr("hello"));
  }
  EXPECT_THAT(asked(), testing::ElementsAre("http CONNECT allowed.test:443 me:secret",
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
  EXPECT_THAT(asked(), IsEmpty());
  EXPECT_THAT(internet_->requests(), IsEmpty());
  // The control.
  EXPECT_THAT(fetch("http://11.1.1.1/", "full").out, HasSubstr("hello"));
  EXPECT_THAT(asked(), Contains(HasSubstr("11.1.1.1:80")));
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
  EXPECT_THAT(asked(), testing::SizeIs(2));
  EXPECT_THAT(carrel({"net", "log", box.id()}).out, HasSubstr("what held before goes on"));
  // Changed while it runs.
  configure(socks());
  EXPECT_THAT(box.sh(get).out, HasSubstr("hello"));
  EXPECT_THAT(asked(), Contains(HasSubstr("socks")));
}

TEST_P(UpstreamProxy, SettingsThatNeverParsedLetNothingOut) {
  configure("proxy = \"http://");
  EXPECT_THAT(fetch("http://allowed.test/", "allow=http:allowed.test").out, HasSubstr("403"));
  EXPECT_THAT(internet_->requests(), IsEmpty());
}

// Where names are looked up over HTTPS.
class UpstreamResolver : public UpstreamTest {
 protected:
  void start_resolver(std::vector<std::string> options = {}) {
    std::vector<std::string> words = {CARREL_SUPPORT_SCRIPTS "/doh.py",
                                      place().work(As::kRoot) + "/internet", record()};
    words.insert(words.end(), options.begin(), options.end());
    const std::string port = start(std::move(words));
    configure("resolver = \"https://127.0.0.1:" + port.substr(0, port.find('\n')) +
              "/dns-query\"\n");
  }
};
CARREL_AS_BOTH(UpstreamResolver);

TEST_P(UpstreamResolver, NamesAreAskedForThereAndNowhereElse) {
  internet_->trust();
  start_resolver();
  EXPECT_THAT(fetch("https://allowed.test/x", "allow=allowed.test").out,
              HasSubstr("hello from allowed.test /x"));
  EXPECT_THAT(asked(), testing::ElementsAre("allowed.test 1"));
  // A name that only the host's resolver knows is not found.
  EXPECT_THAT(fetch("http://evil.test/", "allow=http:evil.test").out,
              testing::AllOf(HasSubstr("403"), HasSubstr("no address")));
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

TEST_P(UpstreamResolver, WhatItAnswersIsJudgedAsAnyAnswer) {
  internet_->trust();
  start_resolver();
  EXPECT_THAT(fetch("http://inside.test/", "allow=http:inside.test").out, HasSubstr("403"));
  EXPECT_THAT(asked(), Contains("inside.test 1"));
  EXPECT_THAT(internet_->requests(), IsEmpty());
}

TEST_P(UpstreamResolver, OneWhoseCertificateNobodyTrustsIsNotAskedNorGoneAround) {
  internet_->trust();
  start_resolver({"foreign"});
  EXPECT_THAT(fetch("http://allowed.test/", "allow=http:allowed.test").out,
              testing::AllOf(HasSubstr("403"), HasSubstr("certificate")));
  EXPECT_THAT(asked(), IsEmpty());
  EXPECT_THAT(internet_->queries(), IsEmpty());
}

}  // namespace
}  // namespace carrel::test
