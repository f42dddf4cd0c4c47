#include "http/client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "http/test_server.h"
#include "support/patience.h"

namespace carrel::http {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::string answer(const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
         "\r\n" + body;
}

ClientOptions quick() {
  ClientOptions options;
  options.connect_patience = milliseconds(2000);
  options.idle_patience = milliseconds(300);
  return options;
}

Request get(const std::string& url) { return Request{.url = parse_url(url).value()}; }

Result<Client::Document> fetch(Client& client, const Request& request) {
  return client.fetch(request, 1 << 20, milliseconds(5000));
}

TEST(ClientTest, RequestIsPlainHttp) {
  std::string seen;
  TestServer server([&](const TestServer::Peer& peer) {
    seen = peer.read_request();
    peer.write(answer("hello"));
  });
  Client client(quick());
  Request request = get(server.url("/path?query"));
  request.headers = {{"Accept", "a/b"}};
  request.authorization = "Bearer token";
  request.offset = 7;
  const auto document = fetch(client, request);
  ASSERT_TRUE(document.ok()) << document.error().to_string();
  EXPECT_EQ(document.value().body, "hello");
  EXPECT_EQ(document.value().response.status(), 200);
  EXPECT_EQ(seen, "GET /path?query HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) +
                      "\r\nUser-Agent: carrel\r\nAccept-Encoding: identity\r\nAccept: a/b\r\n"
                      "Authorization: Bearer token\r\nRange: bytes=7-\r\n\r\n");
}

// A server at a socket of this host that answers one request with these bytes, and then once more.
Result<UniqueFd> upgrade(const std::string& answer, std::string* seen = nullptr) {
  const std::string path = testing::TempDir() + "/upgrade-" + std::to_string(::getpid());
  ::unlink(path.c_str());
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  std::thread server([&] {
    const UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const TestServer::Peer one{peer.get()};
    const std::string asked = one.read_request();
    if (seen != nullptr) {
      *seen = asked;
    }
    one.write(answer);
    char byte = 0;
    if (::recv(peer.get(), &byte, 1, 0) == 1) {
      one.write("after");
    }
  });
  ClientOptions options = quick();
  options.unix_socket = path;
  Client client(std::move(options));
  Request request{.method = Method::kPost, .url = parse_url("http://localhost/attach").value()};
  auto line = client.upgrade(request, "tcp");
  if (line.ok()) {
    EXPECT_EQ(::send(line->get(), "x", 1, MSG_NOSIGNAL), 1);
  }
  const UniqueFd kept(line.ok() ? ::dup(line->get()) : -1);
  server.join();
  ::unlink(path.c_str());
  return line;
}

TEST(ClientTest, AConnectionIsHandedOverThatTheServerUpgraded) {
  std::string seen;
  auto line =
      upgrade("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: TCP\r\n\r\n", &seen);
  ASSERT_TRUE(line.ok()) << line.error().to_string();
  EXPECT_THAT(seen, HasSubstr("POST /attach HTTP/1.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("Connection: Upgrade\r\nUpgrade: tcp\r\n"));
  EXPECT_NE(::fcntl(line->get(), F_GETFL) & O_NONBLOCK, 0);
  std::array<char, 8> text{};
  EXPECT_EQ(::read(line->get(), text.data(), text.size()), 5);
}

TEST(ClientTest, WhatIsNoUpgradeToWhatWasAskedForIsRefused) {
  const std::string upgraded = "HTTP/1.1 101 X\r\nConnection: Upgrade\r\n";
  for (const std::string& answer :
       {std::string("HTTP/1.1 200 OK\r\n\r\n"), std::string("HTTP/1.1 404 No\r\n\r\n"),
        upgraded + "\r\n", upgraded + "Upgrade: h2c\r\n\r\n",
        upgraded + "Upgrade: tcp\r\nUpgrade: tcp\r\n\r\n", upgraded + "Upgrade: tc\r\n\r\n",
        // What comes before anybody has spoken is nobody's.
        upgraded + "Upgrade: tcp\r\n\r\nx", std::string("nothing\r\n\r\n")}) {
    EXPECT_FALSE(upgrade(answer).ok()) << answer;
  }
  Client far(quick());
  EXPECT_EQ(far.upgrade(get("http://127.0.0.1:1/"), "tcp").error().code, Code::kInvalid);
}

TEST(ClientTest, AServerOfThisHostIsReachedByItsSocket) {
  // Longer than an address can be.
  const std::string folder = testing::TempDir() + "/" + std::string(120, 'd');
  const std::string path = folder + "/s";
  ::mkdir(folder.c_str(), 0700);
  ::unlink(path.c_str());
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd place(::open(folder.c_str(), O_PATH | O_CLOEXEC));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string by = "/proc/self/fd/" + std::to_string(place.get()) + "/s";
  by.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  std::thread server([&] {
    const UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const TestServer::Peer one{peer.get()};
    (void)one.read_request();
    one.write(answer("hello"));
  });
  ClientOptions options = quick();
  options.unix_socket = path;
  Client client(options);
  const auto document = fetch(client, get("http://localhost/x"));
  server.join();
  ASSERT_TRUE(document.ok()) << document.error().to_string();
  EXPECT_EQ(document.value().body, "hello");
  ::unlink(path.c_str());
  ::rmdir(folder.c_str());
  Client nobody(options);
  EXPECT_EQ(fetch(nobody, get("http://localhost/x")).error().code, Code::kUnavailable);
}

TEST(ClientTest, HeadersOfARequestCannotBeTwoLines) {
  Client client(quick());
  TestServer server([](const TestServer::Peer& peer) { (void)peer.read_request(); });
  Request request = get(server.url());
  request.authorization = "x\r\nEvil: y";
  EXPECT_FALSE(fetch(client, request).ok());
}

TEST(ClientTest, ConnectionIsKeptForTheNextRequest) {
  TestServer server([](const TestServer::Peer& peer) {
    while (!peer.read_request().empty()) {
      peer.write(answer("x"));
    }
  });
  Client client(quick());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(fetch(client, get(server.url())).ok());
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(ClientTest, KeptConnectionThatEndedIsReplaced) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write(answer("x"));
  });
  Client client(quick());
  for (int i = 0; i < 3; ++i) {
    const auto document = fetch(client, get(server.url()));
    ASSERT_TRUE(document.ok()) << document.error().to_string();
  }
  EXPECT_EQ(server.connections(), 3);
}

TEST(ClientTest, BytesAfterAnAnswerBelongToNoRequest) {
  std::atomic<int> count = 0;
  TestServer server([&](const TestServer::Peer& peer) {
    while (!peer.read_request().empty()) {
      peer.write(answer(std::to_string(++count)) + answer("smuggled"));
    }
  });
  Client client(quick());
  EXPECT_EQ(fetch(client, get(server.url())).value().body, "1");
  EXPECT_EQ(fetch(client, get(server.url())).value().body, "2");
  EXPECT_EQ(server.connections(), 2);
}

TEST(ClientTest, AuthorizationDoesNotFollowARedirectToAnotherHost) {
  std::string elsewhere;
  TestServer other([&](const TestServer::Peer& peer) {
    elsewhere = peer.read_request();
    peer.write(answer("blob"));
  });
  std::string here;
  TestServer server([&](const TestServer::Peer& peer) {
    for (std::string request; !(request = peer.read_request()).empty();) {
      here += request;
      const bool first = request.starts_with("GET /a ");
      peer.write("HTTP/1.1 307 x\r\nContent-Length: 2\r\nLocation: " +
                 (first ? std::string("/b") : other.url("/c")) + "\r\n\r\nno");
    }
  });
  Client client(quick());
  Request request = get(server.url("/a"));
  request.authorization = "Basic c2VjcmV0";
  const auto document = fetch(client, request);
  ASSERT_TRUE(document.ok()) << document.error().to_string();
  EXPECT_EQ(document.value().body, "blob");
  EXPECT_EQ(document.value().response.url.port, other.port());
  EXPECT_THAT(here, HasSubstr("GET /b HTTP/1.1"));
  EXPECT_THAT(here.substr(here.find("GET /b")), HasSubstr("Basic c2VjcmV0"));
  EXPECT_THAT(elsewhere, HasSubstr("GET /c HTTP/1.1"));
  EXPECT_THAT(elsewhere, Not(HasSubstr("Authorization")));
}

TEST(ClientTest, RedirectsEnd) {
  TestServer server([](const TestServer::Peer& peer) {
    while (!peer.read_request().empty()) {
      peer.write("HTTP/1.1 302 x\r\nContent-Length: 0\r\nLocation: /again\r\n\r\n");
    }
  });
  Client client(quick());
  const auto document = fetch(client, get(server.url()));
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.error().message, HasSubstr("redirects without end"));
}

TEST(ClientTest, PlainHttpIsForLoopbackAlone) {
  Client client(quick());
  const auto document = fetch(client, get("http://192.0.2.1/"));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kDenied);
  EXPECT_THAT(document.error().message, HasSubstr("not encrypted"));
}

TEST(ClientTest, RedirectToThisHostFromElsewhereIsRefused) {
  // Through a proxy, so that "elsewhere" is here.
  TestServer proxy([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 302 x\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n");
  });
  ClientOptions options = quick();
  options.plain_http = PlainHttp::kAnywhere;
  options.proxies.http = proxy.url();
  Client client(options);
  const auto document = fetch(client, get("http://example.org/"));
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.error().message, HasSubstr("redirects to this host itself"));
}

TEST(ClientTest, ProxyGetsTheWholeUrl) {
  std::string seen;
  TestServer proxy([&](const TestServer::Peer& peer) {
    seen = peer.read_request();
    peer.write(answer("by proxy"));
  });
  ClientOptions options = quick();
  options.plain_http = PlainHttp::kAnywhere;
  options.proxies.http = "http://user:pass@127.0.0.1:" + std::to_string(proxy.port());
  Client client(options);
  EXPECT_EQ(fetch(client, get("http://example.org/x")).value().body, "by proxy");
  EXPECT_THAT(seen, HasSubstr("GET http://example.org/x HTTP/1.1\r\nHost: example.org\r\n"));
  EXPECT_THAT(seen, HasSubstr("Proxy-Authorization: " + basic_authorization("user", "pass")));
}

TEST(ClientTest, ProxyThatRefusesATunnelIsNamed) {
  std::string seen;
  TestServer proxy([&](const TestServer::Peer& peer) {
    seen = peer.read_request();
    peer.write("HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n");
  });
  ClientOptions options = quick();
  options.proxies.https = proxy.url();
  Client client(options);
  const auto document = fetch(client, get("https://example.org/"));
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(seen, HasSubstr("CONNECT example.org:443 HTTP/1.1\r\n"));
  EXPECT_THAT(document.error().message, HasSubstr("the proxy 127.0.0.1 does not connect"));
}

TEST(ClientTest, SilenceEnds) {
  const auto never = [](const TestServer::Peer& peer) {
    (void)peer.read_request();
    (void)peer.read_request();
  };
  TestServer server(never);
  Client client(quick());
  const auto document = fetch(client, get(server.url()));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kTimeout);
}

TEST(ClientTest, HeadThatComesByteByByteEnds) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 40; ++i) {
      peer.write("a: b\r\n");
      ::usleep(50'000);
    }
  });
  Client client(quick());
  const auto document = fetch(client, get(server.url()));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kTimeout);
}

TEST(ClientTest, CutBodyIsAnError) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
  });
  Client client(quick());
  const auto document = fetch(client, get(server.url()));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kUnavailable);
}

TEST(ClientTest, DocumentsAreBounded) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write(answer(std::string(2000, 'x')));
  });
  Client client(quick());
  const auto document = client.fetch(get(server.url()), 1000, milliseconds(5000));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kResource);
}

TEST(ClientTest, HeadWithoutEndIsRefused) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 200 OK\r\na: " + std::string(200'000, 'x'));
  });
  Client client(quick());
  const auto document = fetch(client, get(server.url()));
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.error().message, HasSubstr("longer than 64 KiB"));
}

TEST(ClientTest, InterimAnswersArePassedOver) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + answer("late"));
  });
  Client client(quick());
  EXPECT_EQ(fetch(client, get(server.url())).value().body, "late");
}

TEST(ClientTest, CompressionThatNobodyAskedForIsRefused) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write(answer("x", "Content-Encoding: gzip\r\n"));
  });
  Client client(quick());
  EXPECT_FALSE(fetch(client, get(server.url())).ok());
}

TEST(ClientTest, PostCarriesItsBodyOverAConnectionOfItsOwn) {
  std::vector<std::string> seen;
  TestServer server([&](const TestServer::Peer& peer) {
    for (std::string head; !(head = peer.read_request()).empty();) {
      std::string body(head.starts_with("POST") ? 5 : 0, '\0');
      if (!body.empty()) {
        (void)!::recv(peer.fd, body.data(), body.size(), MSG_WAITALL);
      }
      seen.push_back(head.substr(0, head.find(' ')) + ":" + body);
      EXPECT_EQ(head.find("Content-Length: 5\r\n") != std::string::npos, !body.empty());
      peer.write(answer("x"));
    }
  });
  Client client(quick());
  ASSERT_TRUE(fetch(client, get(server.url())).ok());
  Request post = get(server.url());
  post.method = Method::kPost;
  post.body = "12345";
  ASSERT_TRUE(fetch(client, post).ok());
  EXPECT_EQ(server.connections(), 2);
  EXPECT_THAT(seen, testing::ElementsAre("GET:", "POST:12345"));
}

TEST(ClientTest, PostIsNotRedirected) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: /b\r\n\r\n");
  });
  Client client(quick());
  Request post = get(server.url());
  post.method = Method::kPost;
  const auto document = fetch(client, post);
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.error().message, HasSubstr("redirects a POST"));
  EXPECT_EQ(server.connections(), 1);
}

TEST(ClientTest, AnswerThatTricklesEndsWithTheDeadline) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    peer.write("HTTP/1.1 200 OK\r\n\r\n");
    for (int i = 0; i < 40; ++i) {
      peer.write("x");
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
  Client client(quick());
  Request request = get(server.url());
  const Deadline begin = Clock::now();
  request.deadline = begin + milliseconds(400);
  const auto document = client.fetch(request, 1 << 20, milliseconds(60'000));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kTimeout);
  EXPECT_LT(Clock::now() - begin, test::patient(milliseconds(1500)));
}

TEST(ClientTest, WhoWaitsCanBeCancelled) {
  TestServer server([](const TestServer::Peer& peer) {
    (void)peer.read_request();
    std::this_thread::sleep_for(milliseconds(300));
  });
  const UniqueFd cancel(::eventfd(0, EFD_CLOEXEC));
  ClientOptions options = quick();
  options.idle_patience = milliseconds(20'000);
  options.cancel = cancel.get();
  Client client(options);
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(50));
    (void)::eventfd_write(cancel.get(), 1);
  });
  const Deadline begin = Clock::now();
  const auto document = fetch(client, get(server.url()));
  canceller.join();
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kGone);
  EXPECT_LT(Clock::now() - begin, test::patient(milliseconds(5000)));
}

}  // namespace
}  // namespace carrel::http
