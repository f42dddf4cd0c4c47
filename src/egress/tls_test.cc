#include "http/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "egress/tls_authority.h"
#include "egress/tls_stream.h"

namespace carrel::egress {
namespace {

using testing::HasSubstr;

// Two ends of a connection in one loop: one answers as a host of the authority's, one asks.
class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    near_ = std::make_unique<Watched>(loop_, UniqueFd(ends[0]));
    far_ = std::make_unique<Watched>(loop_, UniqueFd(ends[1]));
    authority_ = std::move(TlsAuthority::make().value());
  }

  static policy::Host host(std::string_view name) { return policy::canonical_host(name).value(); }

  static TlsSession ask(const TlsAuthority& authority, const std::string& name) {
    std::string path = testing::TempDir() + "/authority-XXXXXX";
    const UniqueFd file(::mkstemp(path.data()));
    std::ofstream(path) << authority.certificate().value();
    const http::TlsTrust trust = http::TlsTrust::of_file(path).value();
    ::unlink(path.c_str());
    return TlsSession(trust.ask_for(name).value());
  }

  TlsSession answer(std::string_view name) {
    return std::move(authority_->answer_as(host(name)).value());
  }

  // The asking side says this much, and the answering one says it again.
  Task<void> asking(TlsSession session, std::size_t size) {
    TlsStream stream(*near_, std::move(session));
    asked_ = co_await stream.shake_hands(in(std::chrono::seconds(10)));
    if (asked_.ok()) {
      const std::string text(size, 'x');
      co_await stream.write_whole(bytes_of(text), kNever);
      co_await stream.end();
      std::array<std::uint8_t, 4096> buffer;
      std::ptrdiff_t n = 1;
      while (n > 0) {
        n = co_await stream.read_some(buffer, in(std::chrono::seconds(10)));
        came_ += n > 0 ? static_cast<std::size_t>(n) : 0;
      }
      end_ = n;
    }
    near_->shut();
    leave();
  }
  Task<void> answering(TlsSession session) {
    TlsStream stream(*far_, std::move(session));
    answered_ = co_await stream.shake_hands(in(std::chrono::seconds(10)));
    std::vector<std::uint8_t> all;
    std::array<std::uint8_t, 4096> buffer;
    std::ptrdiff_t n = answered_.ok() ? 1 : 0;
    while (n > 0) {
      n = co_await stream.read_some(buffer, in(std::chrono::seconds(10)));
      all.insert(all.end(), buffer.begin(), buffer.begin() + std::max<std::ptrdiff_t>(n, 0));
    }
    if (answered_.ok()) {
      co_await stream.write_whole(all, in(std::chrono::seconds(10)));
      if (says_goodbye_) {
        co_await stream.end();
      }
    }
    far_->shut();
    leave();
  }
  void leave() {
    if (++left_ == 2) {
      loop_.stop();
    }
  }
  void talk(TlsSession asks, TlsSession answers, std::size_t size = 100'000) {
    spawn(answering(std::move(answers)));
    spawn(asking(std::move(asks), size));
    ASSERT_TRUE(loop_.run().ok());
  }

  Loop loop_;
  std::unique_ptr<Watched> near_;
  std::unique_ptr<Watched> far_;
  std::unique_ptr<TlsAuthority> authority_;
  Status asked_;
  Status answered_;
  std::size_t came_ = 0;
  std::ptrdiff_t end_ = 0;
  bool says_goodbye_ = true;
  int left_ = 0;
};

TEST_F(TlsTest, WhoTrustsTheAuthorityTalksWithItsServers) {
  talk(ask(*authority_, "example.org"), answer("example.org"));
  EXPECT_TRUE(asked_.ok()) << asked_.error().message;
  EXPECT_TRUE(answered_.ok());
  EXPECT_EQ(came_, 100'000U);
  EXPECT_EQ(end_, 0);
}

TEST_F(TlsTest, AnAddressHasACertificateToo) {
  talk(ask(*authority_, "11.1.1.1"), answer("11.1.1.1"));
  EXPECT_TRUE(asked_.ok()) << asked_.error().message;
}

TEST_F(TlsTest, ACertificateIsForOneName) {
  talk(ask(*authority_, "example.org"), answer("sub.example.org"));
  ASSERT_FALSE(asked_.ok());
  EXPECT_THAT(asked_.error().message, HasSubstr("certificate is not good"));
}

TEST_F(TlsTest, AnotherAuthorityIsNotTrusted) {
  const auto other = std::move(TlsAuthority::make().value());
  talk(ask(*other, "example.org"), answer("example.org"));
  ASSERT_FALSE(asked_.ok());
  EXPECT_FALSE(answered_.ok());
}

TEST_F(TlsTest, AnEndThatNobodyAnnouncedIsAnError) {
  says_goodbye_ = false;
  talk(ask(*authority_, "example.org"), answer("example.org"));
  EXPECT_TRUE(asked_.ok());
  EXPECT_LT(end_, 0);
}

TEST_F(TlsTest, BytesThatAreNoTlsEndTheHandshake) {
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(near_->fd(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  left_ = 1;
  spawn(answering(answer("example.org")));
  ASSERT_TRUE(loop_.run().ok());
  EXPECT_FALSE(answered_.ok());
}

TEST_F(TlsTest, OneCertificateServesANameAgain) {
  EXPECT_TRUE(authority_->answer_as(host("example.org")).ok());
  EXPECT_TRUE(authority_->answer_as(host("example.org")).ok());
  for (int i = 0; i < 600; ++i) {  // more than are kept
    ASSERT_TRUE(authority_->answer_as(host("h" + std::to_string(i) + ".example.org")).ok());
  }
}

}  // namespace
}  // namespace carrel::egress
