#include "egress/upstream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/unique_fd.h"

namespace carrel::egress {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Upstream, AProxyIsHttpOrSocksWithAPortAndMaybeALogin) {
  auto http = parse_upstream("proxy = \"http://Proxy.Corp.example:3128/\"");
  ASSERT_TRUE(http.ok()) << http.error().message;
  ASSERT_TRUE(http->proxy.has_value());
  EXPECT_EQ(http->proxy->kind, ParentProxy::Kind::kHttp);
  EXPECT_EQ(http->proxy->text(), "http://proxy.corp.example:3128");
  auto socks = parse_upstream("proxy = \"socks5://me:se:cret@[2400::1]:1080\"");
  ASSERT_TRUE(socks.ok()) << socks.error().message;
  EXPECT_EQ(socks->proxy->kind, ParentProxy::Kind::kSocks5);
  EXPECT_EQ(socks->proxy->user, "me");
  EXPECT_EQ(socks->proxy->password, "se:cret");
  EXPECT_THAT(socks->proxy->text(), Not(HasSubstr("cret")));
}

TEST(Upstream, AResolverIsAnHttpsUrl) {
  auto settings = parse_upstream("resolver = \"https://1.1.1.1/dns-query\"");
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  ASSERT_TRUE(settings->resolver.has_value());
  EXPECT_EQ(settings->resolver->host.text(), "1.1.1.1");
  EXPECT_EQ(settings->resolver->port, 443);
  EXPECT_EQ(settings->resolver->path, "/dns-query");
  EXPECT_FALSE(settings->proxy.has_value());
}

TEST(Upstream, AnythingElseIsAnError) {
  for (const char* text :
       {"proxy = 3128", "proxy = \"proxy:3128\"", "proxy = \"http://proxy\"",
        "proxy = \"http://proxy:0\"", "proxy = \"http://proxy:70000\"", "proxy = \"http://:80\"",
        "proxy = \"http://proxy:80/path\"", "proxy = \"https://proxy:443\"",
        "proxy = \"http://user@proxy:80\"", "proxy = \"http://a:b\\nX: y@proxy:80\"",
        "resolver = \"http://1.1.1.1/dns-query\"", "resolver = \"1.1.1.1\"", "resolver = 1",
        "proxi = \"http://proxy:80\"", "proxy = ", "[egress]\nproxy = \"http://proxy:80\""}) {
    EXPECT_FALSE(parse_upstream(text).ok()) << text;
  }
}

class UpstreamFile : public testing::Test {
 protected:
  UpstreamFile() {
    char name[] = "/tmp/upstream.XXXXXX";
    place_ = ::mkdtemp(name);
    directory_ = UniqueFd(::open(place_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    upstream_.open(directory_.get());
  }
  ~UpstreamFile() override { std::filesystem::remove_all(place_); }
  void write(const std::string& text) const {
    std::ofstream(place_ + "/" + Upstream::kFile) << text;
  }

  std::string place_;
  UniqueFd directory_;
  Upstream upstream_;
};

TEST_F(UpstreamFile, WithoutAFileConnectionsAreDirect) {
  auto settings = upstream_.current();
  ASSERT_TRUE(settings.ok());
  EXPECT_FALSE(settings->proxy.has_value());
}

TEST_F(UpstreamFile, AFileThatDoesNotParseLeavesWhatHeldAndIsSaidOnce) {
  write("proxy = \"http://proxy:3128\"");
  ASSERT_TRUE(upstream_.current().ok());
  write("proxy = \"http://proxy");
  auto settings = upstream_.current();
  ASSERT_TRUE(settings.ok());
  ASSERT_TRUE(settings->proxy.has_value());
  EXPECT_EQ(settings->proxy->port, 3128);
  EXPECT_THAT(upstream_.take_complaint(), HasSubstr("what held before goes on"));
  ASSERT_TRUE(upstream_.current().ok());
  EXPECT_THAT(upstream_.take_complaint(), IsEmpty());
  write("proxy = \"socks5://proxy:1080\"");
  settings = upstream_.current();
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->proxy->port, 1080);
}

TEST_F(UpstreamFile, WhereNothingHeldBeforeAFileThatDoesNotParseStopsEverything) {
  write("nonsense");
  EXPECT_FALSE(upstream_.current().ok());
  EXPECT_THAT(upstream_.take_complaint(), HasSubstr("nothing is dialled"));
}

}  // namespace
}  // namespace carrel::egress
