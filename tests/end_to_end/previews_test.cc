// Servers in sandboxes, reached through the daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "support/tenants.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

// Answers with what it was asked; /forge and /cookie do what a hostile one would.
constexpr const char* kServer = R"(
import socket, threading
def serve(c):
  f = c.makefile('rb')
  while True:
    line = f.readline()
    if not line: return
    text, size = line, 0
    while (h := f.readline()) not in (b'\r\n', b''):
      text += h
      if h.lower().startswith(b'content-length:'): size = int(h.split(b':')[1])
    body = f.read(size)
    if b'upgrade: websocket' in text:
      c.sendall(b'HTTP/1.1 101 Yes\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello')
      while (d := c.recv(100)): c.sendall(d.upper())
      return
    if b'/forge' in line:
      c.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
                b'HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged')
      continue
    head = b'set-cookie: a=1\r\n' if b'/cookie' in line else b''
    out = text + body
    c.sendall(b'HTTP/1.1 200 OK\r\n' + head + b'content-length: %d\r\n\r\n' % len(out) + out)
s = socket.create_server(('127.0.0.1', 8000))
print('up', flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()
)";

class Previews : public TenantsTest {
 protected:
  // A sandbox with that server.
  std::string create_served() {
    const std::string box = create();
    start_server(box);
    return box;
  }
  void start_server(const std::string& box) {
    const std::string command = start(box, {{"argv", {"python3", "-c", kServer}}});
    ASSERT_TRUE(eventually(10s, [&] { return get(command + "/output").body == "up\n"; }));
  }
  std::string host_of(const std::string& box) {
    return "8000-" + box.substr(box.rfind('/') + 1) +
           ".localhost:" + std::to_string(daemon_->port());
  }
};
CARREL_AS_BOTH(Previews);

// R171
TEST_P(Previews, ServerIsReachedByPathAndByHeaders) {
  serve();
  const std::string box = create_served();
  const ApiAnswer by_path = get(box + "/ports/8000/a/../b%20c?x=1&x=2");
  EXPECT_EQ(by_path.status, 200) << by_path.body;
  EXPECT_THAT(by_path.body, HasSubstr("GET /a/../b%20c?x=1&x=2 HTTP/1.1\r\n"));
  EXPECT_THAT(by_path.body, HasSubstr("host: localhost:8000\r\n"));
  EXPECT_THAT(by_path.headers.at("content-security-policy"), HasSubstr("sandbox"));
  const ApiAnswer by_headers =
      ask(daemon_->socket(),
          {.method = "PATCH",
           .path = "/v1/sandboxes",
           .body = "some body",
           .headers = {"carrel-sandbox: " + box.substr(box.rfind('/') + 1), "carrel-port: 8000"},
           .type = "text/x"});
  EXPECT_THAT(by_headers.body, HasSubstr("PATCH /v1/sandboxes HTTP/1.1\r\n"));
  EXPECT_THAT(by_headers.body, HasSubstr("\r\nsome body"));
  EXPECT_THAT(by_headers.body, Not(HasSubstr("carrel-")));
  const ApiAnswer nobody = get(box + "/ports/8001/");
  EXPECT_EQ(nobody.status, 503);
  EXPECT_THAT(nobody.body, HasSubstr("nothing listens there"));
  EXPECT_EQ(get(box + "/ports/0/").status, 404);
  EXPECT_EQ(get(box + "/ports/99999/").status, 404);
}

// R171, R172
TEST_P(Previews, WebsiteIsSeenThroughTheLinkOfItsSandbox) {
  const std::string mine = token("mine");
  serve_tenants();
  const std::string box =
      "/v1/sandboxes/" +
      post_as(mine, "/v1/sandboxes", json::object()).json()["id"].get<std::string>();
  const json links = get(box).json()["links"];
  const std::string host = "8080" + host_of(box).substr(4);
  EXPECT_EQ(links["website"], "http://" + host + "/");
  EXPECT_EQ(links["vnc"], "http://6080" + host.substr(4) + "/");
  EXPECT_EQ(links.size(), 2U);
  const auto look = [&] {
    return ask(daemon_->port(), {.path = "/page.txt", .headers = {bearer(mine)}, .host = host});
  };
  EXPECT_EQ(look().status, 503);
  shell(box, "echo from inside > page.txt");
  start(box, {{"argv", {"python3", "-m", "http.server", "--bind", "127.0.0.1", "8080"}}});
  EXPECT_TRUE(eventually(10s, [&] { return look().body == "from inside\n"; })) << look().body;
  // They are those of the next daemon, too, and paths where there is no port to name.
  daemon_->kill();
  serve();
  EXPECT_EQ(get(box).json()["links"]["website"], box + "/ports/8080/");
  EXPECT_EQ(get(box + "/ports/8080/page.txt").body, "from inside\n");
}

// R173, B-46
TEST_P(Previews, D41_PortNeedsATokenUnlessItIsPublic) {
  const std::string mine = token("mine");
  const std::string other = token("other");
  serve_tenants();
  const std::string made = post_as(mine, "/v1/sandboxes", json::object()).json()["id"];
  const std::string box = "/v1/sandboxes/" + made;
  start_server(box);
  const std::string path = box + "/ports/8000/x";
  const auto as = [&](const std::string& who, const std::string& where, const std::string& host) {
    return ask(daemon_->port(), {.path = where,
                                 .headers = who.empty() ? std::vector<std::string>{}
                                                        : std::vector<std::string>{bearer(who)},
                                 .host = host});
  };
  EXPECT_EQ(as("", path, "localhost").status, 401);
  EXPECT_EQ(as(other, path, "localhost").status, 404);
  const ApiAnswer own = as(mine, path, "localhost");
  EXPECT_EQ(own.status, 200);
  EXPECT_THAT(own.body, Not(HasSubstr(mine)));  // the sandbox never sees the token
  EXPECT_EQ(as("", "/x", host_of(box)).status, 401);
  EXPECT_EQ(as(mine, "/x", host_of(box)).status, 200);
  const ApiAnswer opened = ask(daemon_->port(), {.method = "PUT",
                                                 .path = box + "/ports/8000",
                                                 .body = R"({"public":true})",
                                                 .headers = {bearer(mine)}});
  EXPECT_EQ(opened.status, 200) << opened.body;
  EXPECT_EQ(opened.json()["url"], "http://" + host_of(box) + "/");
  EXPECT_EQ(as("", "/x", host_of(box)).status, 200);
  EXPECT_EQ(as("", path, "localhost").status, 200);
  daemon_->kill();
  serve_tenants();
  EXPECT_EQ(as("", "/x", host_of(box)).status, 200);
  EXPECT_EQ(as("", box + "/ports/8001/", "localhost").status, 401);
  EXPECT_EQ(ask(daemon_->port(), {.method = "PUT",
                                  .path = box + "/ports/8000",
                                  .body = R"({"public":false})",
                                  .headers = {bearer(mine)}})
                .status,
            200);
  EXPECT_EQ(as("", "/x", host_of(box)).status, 401);
}

// J13
TEST_P(Previews, D41_HostilePageHasNoWayIntoTheApi) {
  const std::string mine = token("mine");
  serve_tenants();
  const std::string box = create_served();
  post(box + "/shell", {{"command", "true"}});
  EXPECT_EQ(ask(daemon_->socket(),
                {.method = "PUT", .path = box + "/ports/8000", .body = R"({"public":true})"})
                .status,
            200);
  // An answer too many is not the answer to the next request of the same connection.
  ApiConnection one(daemon_->socket());
  one.send(request_text({.path = box + "/ports/8000/forge"}));
  EXPECT_EQ(one.read_answer().body, "ok");
  one.send(request_text({.path = "/v1/health"}));
  EXPECT_THAT(one.read_answer().body, HasSubstr("\"ok\""));
  // No cookies under the daemon's name.
  EXPECT_FALSE(get(box + "/ports/8000/cookie").headers.contains("set-cookie"));
  EXPECT_EQ(
      ask(daemon_->port(), {.path = "/cookie", .host = host_of(box)}).headers.at("set-cookie"),
      "a=1");
  // The origin of a preview is its own: the API is not there, and its pages do not reach the API.
  EXPECT_THAT(
      ask(daemon_->port(), {.path = "/v1/version", .headers = {bearer(mine)}, .host = host_of(box)})
          .body,
      HasSubstr("GET /v1/version HTTP/1.1"));
  EXPECT_EQ(ask(daemon_->port(), {.path = "/v1/version",
                                  .headers = {bearer(mine), "origin: http://" + host_of(box)}})
                .status,
            403);
  EXPECT_EQ(ask(daemon_->port(),
                {.path = "/x", .headers = {"origin: http://evil.example"}, .host = host_of(box)})
                .status,
            403);
  EXPECT_EQ(ask(daemon_->port(),
                {.path = "/x", .headers = {"origin: http://" + host_of(box)}, .host = host_of(box)})
                .status,
            200);
}

// J13
TEST_P(Previews, PreviewLeadsToItsOwnSandboxAlone) {
  const std::string mine = token("mine");
  const std::string other = token("other");
  serve_tenants();
  const auto create_of = [&](const std::string& who) {
    const std::string box =
        "/v1/sandboxes/" +
        post_as(who, "/v1/sandboxes", json::object()).json()["id"].get<std::string>();
    start_server(box);
    return box;
  };
  const std::string own = create_of(mine);
  const std::string foreign = create_of(other);
  const auto ask_as_me = [&](const std::string& path, const std::string& host,
                             std::vector<std::string> headers = {}) {
    headers.push_back(bearer(mine));
    return ask(daemon_->port(), {.path = path, .headers = std::move(headers), .host = host});
  };
  const std::string id = foreign.substr(foreign.rfind('/') + 1);
  EXPECT_EQ(ask_as_me("/x", host_of(own)).status, 200);
  EXPECT_EQ(ask_as_me("/x", host_of(foreign)).status, 404);
  EXPECT_EQ(ask_as_me(foreign + "/ports/8000/x", "localhost").status, 404);
  EXPECT_EQ(ask_as_me("/x", "localhost", {"carrel-sandbox: " + id, "carrel-port: 8000"}).status,
            404);
  // The name says whose it is, and no header, no path and no second name says otherwise.
  for (const std::vector<std::string>& headers :
       {std::vector<std::string>{"carrel-sandbox: " + id, "carrel-port: 8000"},
        {"x-forwarded-host: " + host_of(foreign)},
        {"forwarded: host=" + host_of(foreign)}}) {
    const ApiAnswer answer = ask_as_me("/x", host_of(own), headers);
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, Not(HasSubstr(id))) << "nor is it passed on";
  }
  EXPECT_EQ(ask_as_me("/x", host_of(own), {"host: " + host_of(foreign)}).status, 400);
  EXPECT_THAT(ask_as_me("//evil.test/x", host_of(own)).body, HasSubstr("GET //evil.test/x HTTP"));
  EXPECT_THAT(ask_as_me("/..%2f" + id + "/../..", host_of(own)).body,
              HasSubstr("GET /..%2f" + id + "/../.. HTTP"));
  for (const std::string& host :
       {"evil." + host_of(own), host_of(own) + ".evil.test", "8000-" + host_of(own)}) {
    EXPECT_EQ(ask_as_me("/x", host).status / 100, 4) << host;
  }
}

TEST_P(Previews, WebSocketIsPassedThrough) {
  serve();
  const std::string box = create_served();
  ApiConnection socket(daemon_->socket());
  socket.send(request_text(
      {.path = box + "/ports/8000/ws",
       .headers = {"connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13",
                   "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="}}));
  EXPECT_THAT(socket.read_until("hello", 5s), HasSubstr("HTTP/1.1 101 "));
  socket.send("shout");
  EXPECT_THAT(socket.read_until("SHOUT", 5s), HasSubstr("SHOUT"));
}

}  // namespace
}  // namespace carrel::test
