#include "http/server_connection.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "http/tcp.h"

namespace carrel::http {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A client's end of a connection, as a socket, and the server's.
class ServerConnectionTest : public testing::Test {
 protected:
  ServerConnectionTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_ = UniqueFd(ends[0]);
    EXPECT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    stream_ = std::make_unique<TcpStream>(UniqueFd(ends[1]));
    patience_.head = std::chrono::milliseconds(200);
    patience_.idle = std::chrono::milliseconds(200);
    patience_.body = std::chrono::milliseconds(200);
    server_ = std::make_unique<ServerConnection>(*stream_, patience_);
  }
  void say(std::string_view text) const {
    ASSERT_EQ(::send(client_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] std::string heard() const {
    std::array<char, 65536> buffer{};
    const ssize_t size = ::recv(client_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : std::string();
  }
  Code refusal() {
    Status came = server_->next();
    return came.ok() ? Code::kSystem : came.error().code;
  }

  UniqueFd client_;
  ServerPatience patience_;
  std::unique_ptr<TcpStream> stream_;
  std::unique_ptr<ServerConnection> server_;
};

TEST_F(ServerConnectionTest, RequestsComeOneAfterTheOtherOverOneConnection) {
  say("GET /a HTTP/1.1\r\nhost: h\r\n\r\nGET /b?x=1 HTTP/1.1\r\nhost: h\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  EXPECT_EQ(server_->head().path, "/a");
  ASSERT_TRUE(server_->answer({200, {{"x-y", "z"}}, "hello"}).ok());
  EXPECT_TRUE(server_->keeps_open());
  ASSERT_TRUE(server_->next().ok());
  EXPECT_EQ(server_->head().path, "/b");
  EXPECT_EQ(server_->head().query, "?x=1");
  ASSERT_TRUE(server_->answer({404, {}, ""}).ok());
  const std::string text = heard();
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("x-y: z\r\ncontent-length: 5\r\n\r\nhello"));
  EXPECT_THAT(text, HasSubstr("HTTP/1.1 404 Not Found\r\n"));
}

TEST_F(ServerConnectionTest, BodyIsReadByItsLength) {
  say("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n");
  ASSERT_TRUE(server_->next().ok());
  auto body = server_->whole_body(5);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body.value(), "hello");
}

TEST_F(ServerConnectionTest, ChunkedBodyIsPutTogether) {
  say("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n"
      "\r\n");
  ASSERT_TRUE(server_->next().ok());
  auto body = server_->whole_body(100);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body.value(), "abcde");
}

TEST_F(ServerConnectionTest, BodyThatIsTooLargeIsNotRead) {
  say("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 6\r\n\r\nhello!");
  ASSERT_TRUE(server_->next().ok());
  auto body = server_->whole_body(5);
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.error().code, Code::kResource);
}

TEST_F(ServerConnectionTest, ChunksBeyondTheLimitAreNotRead) {
  say("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  EXPECT_FALSE(server_->whole_body(5).ok());
}

TEST_F(ServerConnectionTest, ExpectationIsMetWhenTheBodyIsWanted) {
  say("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  EXPECT_EQ(heard(), "");
  std::thread client([&] {
    std::array<char, 64> buffer{};
    (void)::recv(client_.get(), buffer.data(), buffer.size(), 0);
    EXPECT_THAT(std::string(buffer.data()), StartsWith("HTTP/1.1 100 Continue\r\n\r\n"));
    say("ok");
  });
  auto body = server_->whole_body(10);
  client.join();
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body.value(), "ok");
}

TEST_F(ServerConnectionTest, ExpectationThatNobodyMetEndsTheConnection) {
  say("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  ASSERT_TRUE(server_->answer({403, {}, ""}).ok());
  EXPECT_FALSE(server_->keeps_open());
  EXPECT_THAT(heard(), HasSubstr("connection: close\r\n"));
}

TEST_F(ServerConnectionTest, BodyThatNobodyReadIsSkipped) {
  say("POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nhost: "
      "h\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  ASSERT_TRUE(server_->answer({400, {}, "no"}).ok());
  ASSERT_TRUE(server_->next().ok());
  EXPECT_EQ(server_->head().path, "/b");
}

TEST_F(ServerConnectionTest, AnswerOfUnknownLengthIsChunked) {
  say("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  ASSERT_TRUE(server_->begin(200, {}).ok());
  ASSERT_TRUE(server_->send("hello").ok());
  ASSERT_TRUE(server_->send("").ok());
  ASSERT_TRUE(server_->finish().ok());
  EXPECT_THAT(heard(), EndsWith("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
}

TEST_F(ServerConnectionTest, OldClientGetsItUntilTheEnd) {
  say("GET / HTTP/1.0\r\nhost: h\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  ASSERT_TRUE(server_->begin(200, {}).ok());
  ASSERT_TRUE(server_->send("hello").ok());
  ASSERT_TRUE(server_->finish().ok());
  EXPECT_THAT(heard(), EndsWith("connection: close\r\n\r\nhello"));
  EXPECT_FALSE(server_->keeps_open());
}

TEST_F(ServerConnectionTest, HeadersThatWouldBeginALineAreLeftOut) {
  say("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
  ASSERT_TRUE(server_->next().ok());
  ASSERT_TRUE(server_->answer({200, {{"x", "a\r\nset-cookie: b"}, {"y z", "c"}}, ""}).ok());
  EXPECT_EQ(heard().find("set-cookie"), std::string::npos);
}

TEST_F(ServerConnectionTest, SlowHeadIsATimeout) {
  say("GET / HTTP/1.1\r\nho");
  EXPECT_EQ(refusal(), Code::kTimeout);
}

TEST_F(ServerConnectionTest, SlowBodyIsATimeout) {
  say("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhel");
  ASSERT_TRUE(server_->next().ok());
  auto body = server_->whole_body(10);
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.error().code, Code::kTimeout);
}

TEST_F(ServerConnectionTest, NonsenseAndTooMuchAreTold) {
  say("HELLO\r\n\r\n");
  EXPECT_EQ(refusal(), Code::kInvalid);
  server_ = std::make_unique<ServerConnection>(*stream_, patience_);
  say("GET / HTTP/1.1\r\nx: " + std::string(40'000, 'a'));
  EXPECT_EQ(refusal(), Code::kResource);
}

TEST_F(ServerConnectionTest, ClientThatSaysNothingHasLeft) {
  EXPECT_EQ(refusal(), Code::kGone);
  client_.reset();
  EXPECT_EQ(refusal(), Code::kGone);
}

}  // namespace
}  // namespace carrel::http
