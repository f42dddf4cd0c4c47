// Group J: what strangers, browsers and other tenants try with the API. What is tried on every
// route comes from the daemon's own document, so that a new route is tried too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/api.h"
#include "support/fixture.h"
#include "support/leftovers.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

class ApiAttacks : public CarrelTest {
 protected:
  struct Target {
    std::string method;
    std::string path;
    bool open = false;    // needs no token
    bool writes = false;  // needs one that may write
  };

  void SetUp() override {
    CarrelTest::SetUp();
    tokens_ = place().work(GetParam()) + "/tokens";
  }
  void TearDown() override {
    daemon_.reset();
    CarrelTest::TearDown();
  }

  std::string token(const std::string& name, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"serve", "--new-token", name, "--token-file", tokens_});
    const Run made = carrel(options);
    EXPECT_EQ(made.status, 0) << made.err;
    return made.out.substr(0, made.out.find('\n'));
  }
  void serve() {
    const std::string socket = place().home(GetParam()) + "/run/api.sock";
    daemon_ = std::make_unique<Daemon>(
        GetParam(), std::vector<std::string>{"--listen", "tcp:127.0.0.1:0,unix:" + socket,
                                             "--token-file", tokens_});
    port_ = daemon_->port();
    ASSERT_NE(port_, 0) << daemon_->log();
  }
  void serve_on_socket() { daemon_ = std::make_unique<Daemon>(GetParam()); }

  // Every operation of the document, with this id in the place of every argument.
  std::vector<Target> targets(const std::string& id) {
    std::vector<Target> all;
    const json document = json::parse(carrel({"serve", "--openapi"}).out, nullptr, false);
    for (const auto& [path, methods] : document["paths"].items()) {
      for (const auto& [method, operation] : methods.items()) {
        Target target;
        for (const char c : method) {
          target.method += static_cast<char>(std::toupper(c));
        }
        target.path = path;
        for (std::size_t at; (at = target.path.find('{')) != std::string::npos;) {
          const std::string name = target.path.substr(at + 1, target.path.find('}') - at - 1);
          target.path.replace(at, name.size() + 2, name == "id" ? id : "1");
        }
        std::string query;
        for (const json& parameter : operation.value("parameters", json::array())) {
          if (parameter["in"] == "query" && parameter["required"] == true) {
            query += (query.empty() ? "?" : "&") + parameter["name"].get<std::string>() + "=x";
          }
        }
        target.path += query;
        target.open = operation.contains("security");
        target.writes = operation["description"] == "Needs a token that may write.";
        all.push_back(target);
      }
    }
    EXPECT_GT(all.size(), 25U);
    return all;
  }
  ApiAnswer try_it(const Target& target, std::vector<std::string> headers) const {
    const bool body = target.method == "POST" || target.method == "PUT";
    return ask(port_, {.method = target.method,
                       .path = target.path,
                       .body = body ? "{}" : "",
                       .headers = std::move(headers)});
  }
  static std::string bearer(const std::string& token) { return "authorization: Bearer " + token; }
  ApiAnswer post_as(const std::string& token, const std::string& path, const json& body,
                    std::vector<std::string> headers = {}) const {
    headers.push_back(bearer(token));
    return ask(
        port_,
        {.method = "POST", .path = path, .body = body.dump(), .headers = std::move(headers)});
  }
  // The path of a new sandbox of that token's.
  std::string create_as(const std::string& token) const {
    const ApiAnswer made = post_as(token, "/v1/sandboxes", json::object());
    EXPECT_EQ(made.status, 201) << made.body;
    return made.status == 201 ? "/v1/sandboxes/" + made.json()["id"].get<std::string>() : "";
  }
  // The path of a command in the background.
  std::string start_as(const std::string& token, const std::string& box, const json& body) const {
    const ApiAnswer made = post_as(token, box + "/commands", body);
    EXPECT_EQ(made.status, 201) << made.body;
    return made.status == 201 ? box + "/commands/" + made.json()["id"].get<std::string>() : "";
  }
  // A connection that has sent this, with these headers.
  std::unique_ptr<ApiConnection> begin(const ApiRequest& request) const {
    auto connection = std::make_unique<ApiConnection>(port_);
    EXPECT_TRUE(connection->connected());
    EXPECT_TRUE(connection->send(request_text(request)));
    return connection;
  }
  // Takes the lines out of the file of tokens that begin with this name.
  void take_back(const std::string& name) const {
    std::istringstream lines(read_text(tokens_).value_or(""));
    std::string rest;
    for (std::string line; std::getline(lines, line);) {
      rest += line.starts_with(name + " ") ? "" : line + "\n";
    }
    write_text(tokens_, rest, 0600);
    place().give(tokens_, GetParam());
    ASSERT_EQ(::kill(daemon_->pid(), SIGHUP), 0);
  }

  std::string tokens_;
  int port_ = 0;
  std::unique_ptr<Daemon> daemon_;
};
CARREL_AS_BOTH(ApiAttacks);

constexpr const char* kNobody = "00000000-0000-4000-8000-000000000000";

// What asks for a WebSocket, beside the path.
std::vector<std::string> upgrade(std::vector<std::string> headers) {
  headers.insert(headers.end(),
                 {"connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13",
                  "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="});
  return headers;
}

TEST_P(ApiAttacks, TcpWithoutTokensIsNotServed) {
  const Run run = carrel({"serve", "--listen", "tcp:127.0.0.1:0"});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("TCP without tokens"));
}

// J01, J21, K07
TEST_P(ApiAttacks, NoRouteIsServedWithoutAGoodToken) {
  const std::string good = token("ci");
  serve();
  const std::vector<std::vector<std::string>> attempts = {{},
                                                          {"authorization: Bearer "},
                                                          {"authorization: Bearer nonsense"},
                                                          {"authorization: bearer " + good},
                                                          {"authorization: Basic " + good},
                                                          {"authorization: " + good},
                                                          {bearer(good + "0")},
                                                          {bearer(good.substr(0, good.size() - 1))},
                                                          {bearer(good), bearer(good)},
                                                          {"x-token: " + good},
                                                          {"cookie: token=" + good}};
  std::vector<std::string> open;
  for (const Target& target : targets(kNobody)) {
    if (target.open) {
      open.push_back(target.path);
      EXPECT_EQ(try_it(target, {}).json().size(), 1U) << "more than how it is";
      continue;
    }
    for (const std::vector<std::string>& attempt : attempts) {
      EXPECT_EQ(try_it(target, attempt).status, 401) << target.method << " " << target.path;
    }
    Target in_query = target;
    in_query.path += (target.path.find('?') == std::string::npos ? "?token=" : "&token=") + good;
    EXPECT_EQ(try_it(in_query, {}).status, 401) << target.path;
  }
  EXPECT_THAT(open, testing::ElementsAre("/v1/health", "/v1/ready"));
  EXPECT_EQ(try_it({"GET", "/v1/version"}, {bearer(good)}).status, 200);
  EXPECT_EQ(try_it({"GET", "/v1/version"}, {bearer(good + std::string(1, '\0'))}).status, 400);
  // What is not there is not told to strangers either.
  EXPECT_EQ(try_it({"GET", "/v1/admin"}, {}).status, 401);
  EXPECT_THAT(read_text(tokens_).value_or(""), testing::Not(HasSubstr(good)));
  EXPECT_THAT(daemon_->log(), testing::Not(HasSubstr(good)));
}

// J03
TEST_P(ApiAttacks, TokenThatMayLookChangesNothing) {
  const std::string look = token("viewer", {"--read-only"});
  serve();
  int refused = 0;
  for (const Target& target : targets(kNobody)) {
    if (target.writes) {
      EXPECT_EQ(try_it(target, {bearer(look)}).status, 403) << target.method << " " << target.path;
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(try_it({"GET", "/v1/sandboxes"}, {bearer(look)}).status, 200);
}

// J02
TEST_P(ApiAttacks, SandboxOfAnotherIsAsIfItWereNotThere) {
  const std::string mine = token("mine");
  const std::string other = token("other");
  serve();
  const ApiAnswer made = ask(
      port_, {.method = "POST", .path = "/v1/sandboxes", .body = "{}", .headers = {bearer(mine)}});
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id = made.json()["id"];
  for (const Target& target : targets(id)) {
    if (target.path.find(id) == std::string::npos) {
      continue;
    }
    const ApiAnswer answer = try_it(target, {bearer(other)});
    EXPECT_TRUE(answer.status == 404 || answer.status == 400) << target.path << answer.body;
    Target nobody = target;
    nobody.path.replace(nobody.path.find(id), id.size(), kNobody);
    std::string expected = try_it(nobody, {bearer(other)}).body;
    for (std::size_t at; (at = expected.find(kNobody)) != std::string::npos;) {
      expected.replace(at, std::strlen(kNobody), id);
    }
    EXPECT_EQ(answer.body, expected) << target.method << " " << target.path;
  }
  EXPECT_EQ(ask(port_, {.path = "/v1/sandboxes?all=true", .headers = {bearer(other)}})
                .json()["sandboxes"]
                .size(),
            0U);
  EXPECT_EQ(
      ask(port_, {.path = "/v1/sandboxes", .headers = {bearer(mine)}}).json()["sandboxes"].size(),
      1U);
  std::string upper = id;
  for (char& c : upper) {
    c = static_cast<char>(std::toupper(c));
  }
  for (const std::string& odd : {upper, id.substr(0, 8), "%" + id.substr(1), id + "/", "./" + id,
                                 "../sandboxes/" + id, id + ";x=1", id + "%00"}) {
    EXPECT_EQ(ask(port_, {.path = "/v1/sandboxes/" + odd, .headers = {bearer(mine)}}).status, 404)
        << odd;
  }
}

TEST_P(ApiAttacks, RequestWithATokenCanOnlyNarrow) {
  const std::string good = token("agent");
  serve();
  const std::vector<json> wishes = {
      {{"memory", "2g"}},   {{"network", "full"}},        {{"mount", {"/usr/share:/mnt/x"}}},
      {{"image", "dir:/"}}, {{"workspace", "somebodys"}}, {{"pids", 5000}}};
  for (const json& wish : wishes) {
    for (const std::string path : {"/v1/sandboxes", "/v1/run"}) {
      json body = wish;
      if (path == "/v1/run") {
        body["argv"] = {"true"};
      }
      const ApiAnswer answer = ask(
          port_, {.method = "POST", .path = path, .body = body.dump(), .headers = {bearer(good)}});
      EXPECT_EQ(answer.status, 403) << path << " " << body << answer.body;
    }
  }
  EXPECT_EQ(ask(port_, {.method = "POST",
                        .path = "/v1/run",
                        .body = R"({"argv":["true"],"memory":"64m"})",
                        .headers = {bearer(good)}})
                .status,
            200);
}

// J05
TEST_P(ApiAttacks, TokenThatWasTakenBackIsOfNoUse) {
  const std::string good = token("gone");
  token("stays");
  serve();
  EXPECT_EQ(try_it({"GET", "/v1/version"}, {bearer(good)}).status, 200);
  take_back("gone");
  EXPECT_TRUE(
      eventually(1s, [&] { return try_it({"GET", "/v1/version"}, {bearer(good)}).status == 401; }));
}

// J05: what it had begun ends, too, and only that
TEST_P(ApiAttacks, StreamsOfATokenThatWasTakenBackAreCutOff) {
  const std::string gone = token("gone");
  const std::string stays = token("stays");
  serve();
  const std::string box = create_as(gone);
  const std::string ticks = "while :; do echo tick; sleep 0.1; done";
  const std::string ticking = start_as(gone, box, {{"argv", {"bash", "-c", ticks}}});
  const std::string terminal =
      start_as(gone, box, {{"argv", {"bash", "-i"}}, {"terminal", true}, {"stdin", true}});
  std::vector<std::unique_ptr<ApiConnection>> lost;
  for (const std::string& path :
       {ticking + "/events", std::string("/v1/events"), box + "/files/watch?path=."}) {
    lost.push_back(begin({.path = path, .headers = {bearer(gone)}}));
    ASSERT_THAT(lost.back()->read_until("\r\n\r\n", 10s), HasSubstr(" 200 ")) << path;
  }
  lost.push_back(begin({.path = terminal + "/terminal", .headers = upgrade({bearer(gone)})}));
  ASSERT_THAT(lost.back()->read_until("\r\n\r\n", 10s), HasSubstr(" 101 "));
  lost.push_back(begin({.method = "POST",
                        .path = box + "/exec",
                        .body = R"({"argv":["sleep","4545"]})",
                        .headers = {bearer(gone)}}));
  const auto commands = [&] {
    return ask(daemon_->socket(), {.path = box + "/commands"}).json()["commands"];
  };
  ASSERT_TRUE(eventually(5s, [&] { return commands().size() == 3; }));
  const auto kept = begin({.path = "/v1/events", .headers = {bearer(stays)}});
  ASSERT_THAT(kept->read_until("\r\n\r\n", 10s), HasSubstr(" 200 "));
  const std::string own = create_as(stays);

  take_back("gone");
  for (const auto& connection : lost) {
    EXPECT_TRUE(connection->ends(2s));
  }
  EXPECT_EQ(post_as(gone, box + "/exec", {{"argv", {"true"}}}).status, 401);
  // The command that it waited for has ended, those in the background go on.
  EXPECT_TRUE(eventually(5s, [&] {
    int running = 0;
    for (const json& command : commands()) {
      running += command["state"] == "running" ? 1 : 0;
    }
    return running == 2;
  })) << commands();
  // Others have noticed nothing.
  EXPECT_EQ(post_as(stays, own + "/exec", {{"argv", {"true"}}}).status, 200);
  EXPECT_THAT(kept->read_until("event: result", 5s), HasSubstr("event: result"));
  EXPECT_THAT(daemon_->log(), HasSubstr("\"cut_off\":5"));
}

// J06: 256 bits are not guessed, but who tries is noticed and nobody is locked out for it
TEST_P(ApiAttacks, GuessesAreCountedAndLockNobodyOut) {
  const std::string good = token("owner");
  serve();
  for (int i = 0; i < 200; ++i) {
    const std::string guess = good.substr(0, good.size() - 1 - static_cast<std::size_t>(i % 60));
    ASSERT_EQ(try_it({"GET", "/v1/version"}, {bearer(guess + "x")}).status, 401);
    ASSERT_EQ(i % 50 == 0 ? try_it({"GET", "/v1/version"}, {bearer(good)}).status : 200, 200);
  }
  const auto metrics = [&] { return try_it({"GET", "/metrics"}, {bearer(good)}).body; };
  EXPECT_THAT(metrics(), HasSubstr("carrel_requests_refused_total 200\n"));
  EXPECT_TRUE(eventually(
      5s, [&] { return metrics().find("carrel_alerts_total 0\n") == std::string::npos; }));
}

// J07, J09, J10
TEST_P(ApiAttacks, WebPagesHaveNoWayIn) {
  const std::string good = token("ci");
  serve();
  for (const std::string& host :
       {std::string("evil.test"), "evil.test:" + std::to_string(port_),
        std::string("127.0.0.1.nip.io"), std::string("localhost.evil.test"),
        std::string("localhost:1"), std::string("127.0.0.2"), std::string("evil.test."),
        std::string("[::2]"), std::string("localhost.localdomain")}) {
    EXPECT_EQ(ask(port_, {.path = "/v1/version", .headers = {bearer(good)}, .host = host}).status,
              403)
        << host;
    EXPECT_EQ(ask(port_, {.path = "/v1/health", .host = host}).status, 403) << host;
  }
  EXPECT_EQ(ask(port_, {.path = "/v1/version", .headers = {bearer(good)}, .host = ""}).status, 400);
  for (const std::string origin : {"null", "http://localhost", "http://evil.test"}) {
    const ApiAnswer answer =
        ask(port_, {.path = "/v1/version", .headers = {bearer(good), "origin: " + origin}});
    EXPECT_EQ(answer.status, 403) << origin;
    EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
  }
  EXPECT_EQ(ask(port_, {.method = "POST",
                        .path = "/v1/run",
                        .body = R"({"argv":["true"]})",
                        .headers = {bearer(good)},
                        .type = "text/plain"})
                .status,
            415);
}

// J10
TEST_P(ApiAttacks, TerminalIsRefusedBeforeItIsOne) {
  const std::string good = token("ci");
  const std::string look = token("viewer", {"--read-only"});
  serve();
  const std::string box = create_as(good);
  const std::string path =
      start_as(good, box, {{"argv", {"bash", "-i"}}, {"terminal", true}, {"stdin", true}}) +
      "/terminal";
  const auto shake = [&](const std::string& where, std::vector<std::string> headers) {
    return begin({.path = where, .headers = upgrade(std::move(headers))})->read_answer().status;
  };
  EXPECT_EQ(shake(path, {bearer(good)}), 101);
  for (const std::string origin :
       {"null", "http://localhost", "http://127.0.0.1", "https://evil.test", "file://"}) {
    EXPECT_EQ(shake(path, {bearer(good), "origin: " + origin}), 403) << origin;
    EXPECT_EQ(shake(path, {"origin: " + origin}), 403) << origin;
  }
  EXPECT_EQ(shake(path, {}), 401);
  EXPECT_EQ(shake(path, {bearer(look)}), 403);
  EXPECT_EQ(shake(path, {"sec-websocket-protocol: bearer, " + good}), 401);
  EXPECT_EQ(shake(path, {"cookie: token=" + good}), 401);
  EXPECT_EQ(shake(path + "?token=" + good, {}), 401);
  EXPECT_EQ(shake(path + "?token=" + good, {bearer(good)}), 400);
  EXPECT_THAT(daemon_->log(), testing::Not(HasSubstr(good)));
}

// J14, J15
TEST_P(ApiAttacks, WhatCouldBeReadInTwoWaysIsRefused) {
  serve_on_socket();
  const std::string host = "host: localhost\r\n";
  const std::vector<std::string> requests = {
      "GET /v1/health HTTP/1.1\r\n\r\n",
      "GET /v1/health HTTP/1.1\r\n" + host + host + "\r\n",
      "GET /v1/health HTTP/2.0\r\n" + host + "\r\n",
      "GET /v1/health HTTP/1.1\n" + host + "\r\n",
      "GET  /v1/health HTTP/1.1\r\n" + host + "\r\n",
      "GET /v1/health HTTP/1.1\r\n" + host + "content-length : 0\r\n\r\n",
      "GET /v1/health HTTP/1.1\r\n" + host + " folded: x\r\n\r\n",
      "POST /v1/run HTTP/1.1\r\n" + host + "content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
      "POST /v1/run HTTP/1.1\r\n" + host +
          "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /v1/run HTTP/1.1\r\n" + host + "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST /v1/run HTTP/1.1\r\n" + host + "content-length: -1\r\n\r\n",
      "POST /v1/run HTTP/1.1\r\n" + host +
          "content-type: application/json\r\ntransfer-encoding: "
          "chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\n\r\n"};
  for (const std::string& request : requests) {
    ApiConnection connection(daemon_->socket());
    ASSERT_TRUE(connection.connected());
    connection.send(request);
    EXPECT_EQ(connection.read_answer().status, 400) << request;
  }
  for (const std::string path : {"/v1/../v1/health", "//v1/health", "/v1/%68ealth", "/v1/health/",
                                 "/V1/health", "/v1/health;x=1", "/v1//health", "/v1/./health"}) {
    EXPECT_EQ(ask(daemon_->socket(), {.path = path}).status, 404) << path;
  }
  ApiConnection mirror(daemon_->socket());
  mirror.send("TRACE /v1/health HTTP/1.1\r\n" + host + "\r\n");
  EXPECT_EQ(mirror.read_answer().status, 405);
  ApiConnection large(daemon_->socket());
  large.send("GET /v1/health HTTP/1.1\r\n" + host + "x: " + std::string(100'000, 'a') + "\r\n\r\n");
  EXPECT_EQ(large.read_answer().status, 431);
  EXPECT_EQ(ask(daemon_->socket(), {.path = "/v1/health"}).status, 200);
}

// G19
TEST_P(ApiAttacks, JsonBombsAreRefused) {
  serve_on_socket();
  const auto post = [&](const std::string& body) {
    return ask(daemon_->socket(), {.method = "POST", .path = "/v1/run", .body = body}).status;
  };
  EXPECT_EQ(post(std::string(100'000, '[')), 400);
  EXPECT_EQ(post(R"({"argv":)" + std::string(40, '[') + std::string(40, ']') + "}"), 400);
  EXPECT_EQ(post(R"({"argv":["true"],"argv":["false"]})"), 400);
  EXPECT_EQ(post("{\"argv\":[\"\xff\"]}"), 400);
  EXPECT_EQ(post("not json"), 400);
  EXPECT_EQ(post("[]"), 400);
  EXPECT_EQ(post(R"({"argv":["true"],"memroy":"1g"})"), 400);
  std::string keys = "{";
  for (int i = 0; i < 120'000; ++i) {
    keys += "\"k" + std::to_string(i) + "\":1,";
  }
  EXPECT_EQ(post(keys + "\"x\":1}"), 400);
  // What is compressed is no JSON: nothing is unpacked.
  EXPECT_EQ(ask(daemon_->socket(), {.method = "POST",
                                    .path = "/v1/run",
                                    .body = std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10),
                                    .headers = {"content-encoding: gzip"}})
                .status,
            400);
  EXPECT_EQ(post("{\"argv\":[\"" + std::string(9U << 20U, 'a') + "\"]}"), 413);
  for (const char* number : {"-1", "1.5", "18446744073709551616", "1e400", "\"4\"", "true"}) {
    EXPECT_EQ(post(R"({"argv":["true"],"pids":)" + std::string(number) + "}"), 400) << number;
  }
  EXPECT_EQ(ask(daemon_->socket(), {.path = "/v1/health"}).status, 200);
}

// J18: of a quota, the words are in Quota.WordsThatMakeNoSenseAreRefused
TEST_P(ApiAttacks, LimitsThatAreNoNumbersAreRefused) {
  const std::string good = token("ci", {"--quota", "sandboxes=1"});
  serve();
  for (const char* body :
       {R"({"memory":"-1"})", R"({"memory":-1})", R"({"memory":1.5})", R"({"memory":"1e400g"})",
        R"({"memory":"18446744073709551616"})", R"({"memory":"18446744073709551615g"})",
        R"({"memory":"\u0661\u0660g"})", R"({"memory":"0x40000000"})", R"({"cpus":-0.5})",
        R"({"cpus":"nan"})", R"({"cpus":1e400})", R"({"pids":"\uff11\uff10"})", R"({"disk":"-1g"})",
        R"({"lease":-1})", R"({"lease":1e300})", R"({"timeout":0})"}) {
    EXPECT_EQ(
        ask(port_,
            {.method = "POST", .path = "/v1/sandboxes", .body = body, .headers = {bearer(good)}})
            .status,
        400)
        << body;
  }
  // None of them took the only place.
  EXPECT_NE(create_as(good), "");
  EXPECT_EQ(post_as(good, "/v1/sandboxes", json::object()).status, 429);
}

// J19
TEST_P(ApiAttacks, IdempotencyKeyIsItsTenantsOwn) {
  const std::string mine = token("mine");
  const std::string other = token("other");
  serve();
  const std::vector<std::string> key = {"idempotency-key: shared"};
  const ApiAnswer first = post_as(mine, "/v1/sandboxes", {{"pids", 40}}, key);
  ASSERT_EQ(first.status, 201) << first.body;
  const ApiAnswer second = post_as(other, "/v1/sandboxes", {{"pids", 40}}, key);
  ASSERT_EQ(second.status, 201) << second.body;
  EXPECT_NE(first.json()["id"], second.json()["id"]);
  EXPECT_EQ(post_as(mine, "/v1/sandboxes", {{"pids", 40}}, key).json()["id"], first.json()["id"]);
  EXPECT_EQ(post_as(mine, "/v1/sandboxes", {{"pids", 41}}, key).status, 409);
  // Whose key it is not hears nothing of it.
  EXPECT_EQ(post_as(other, "/v1/sandboxes", {{"pids", 41}}, {"idempotency-key: own"}).status, 201);
}

// G17: the hour of it is in ./dev soak
TEST_P(ApiAttacks, ComingAndGoingLeavesNothing) {
  // A large host has others ready, which come and go as well.
  daemon_ = std::make_unique<Daemon>(GetParam(), std::vector<std::string>{"--warm", "0"});
  const auto come_and_go = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const ApiAnswer made = ask(
          daemon_->socket(), {.method = "POST", .path = "/v1/sandboxes", .body = R"({"pids":30})"});
      ASSERT_EQ(made.status, 201) << made.body;
      const std::string box = "/v1/sandboxes/" + made.json()["id"].get<std::string>();
      ASSERT_EQ(ask(daemon_->socket(), {.method = "POST",
                                        .path = box + "/shell",
                                        .body = R"({"command":"echo x > f; sleep 1000 &"})"})
                    .status,
                200);
      ASSERT_EQ(ask(daemon_->socket(), {.method = "DELETE", .path = box + "?grace_ms=0"}).status,
                204);
    }
  };
  const auto descriptors = [&] {
    const std::string path = "/proc/" + std::to_string(daemon_->pid()) + "/fd";
    return std::distance(std::filesystem::directory_iterator(path), {});
  };
  constexpr int kClients = 4;
  come_and_go(3);
  const Leftovers before = Leftovers::snapshot();
  const auto open = descriptors();
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] { come_and_go(15); });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(left_since(before), "");
  // What is kept for the next one is kept for as many as there were at once, and not for 60.
  EXPECT_TRUE(eventually(5s, [&] { return descriptors() <= open + kClients; }))
      << descriptors() << " instead of " << open;
  EXPECT_THAT(ask(daemon_->socket(), {.path = "/metrics"}).body, HasSubstr("carrel_sandboxes 0\n"));
}

// G19: slow clients hold a thread each, and nobody else
TEST_P(ApiAttacks, SlowClientsAreCutOffAndHoldNobodyUp) {
  serve_on_socket();
  std::vector<std::unique_ptr<ApiConnection>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<ApiConnection>(daemon_->socket()));
    slow.back()->send("GET /v1/health HTTP/1.1\r\nhost: local");
  }
  EXPECT_EQ(ask(daemon_->socket(), {.path = "/v1/health"}).status, 200);
  const ApiAnswer cut = slow.front()->read_answer();
  EXPECT_EQ(cut.status, 408);
}

TEST_P(ApiAttacks, MoreConnectionsThanThereMayBeAreToldAtOnce) {
  serve_on_socket();
  std::vector<std::unique_ptr<ApiConnection>> many;
  for (int i = 0; i < 512; ++i) {
    many.push_back(std::make_unique<ApiConnection>(daemon_->socket()));
    ASSERT_TRUE(many.back()->connected());
  }
  ASSERT_TRUE(
      eventually(5s, [&] { return ask(daemon_->socket(), {.path = "/v1/health"}).status == 503; }));
  many.clear();
  EXPECT_TRUE(
      eventually(5s, [&] { return ask(daemon_->socket(), {.path = "/v1/health"}).status == 200; }));
}

// J17
TEST_P(ApiAttacks, SocketIsMadeOnlyWhereNobodyCouldPutAnother) {
  const std::string work = place().work(GetParam());
  const std::string canary = file("canary", "of somebody else");
  const auto refusal = [&](const std::string& path) {
    return carrel({"serve", "--listen", "unix:" + path}, {.timeout_seconds = 10});
  };
  for (const char* name : {"open", "own"}) {
    const std::string directory = work + "/" + name;
    ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
    place().give(directory, GetParam());
    ASSERT_EQ(::chmod(directory.c_str(), name == std::string("open") ? 0777 : 0700), 0);
  }
  EXPECT_TRUE(says_one_line(refusal(work + "/open/api.sock"), "others can write to the directory"));
  ASSERT_EQ(::symlink(canary.c_str(), (work + "/own/api.sock").c_str()), 0);
  EXPECT_TRUE(says_one_line(refusal(work + "/own/api.sock"), "is there and no socket of yours"));
  EXPECT_EQ(read_text(canary), "of somebody else");
  EXPECT_TRUE(std::filesystem::is_symlink(work + "/own/api.sock"));
  EXPECT_TRUE(says_one_line(refusal("@abstract"), "is no absolute path"));
}

// J17
TEST_P(ApiAttacks, AnotherUserDoesNotGetInEvenWithTheSocketOpenToHim) {
  ASSERT_EQ(::geteuid(), 0U) << "somebody else can be played by root alone";
  serve_on_socket();
  // The kernel's word counts, and not only the file's mode.
  const std::string home = place().home(GetParam());
  for (const std::string& path : {home + "/..", home, home + "/run"}) {
    ASSERT_EQ(::chmod(path.c_str(), 0711), 0);
  }
  ASSERT_EQ(::chmod(daemon_->socket().c_str(), 0666), 0);
  constexpr uid_t kSomebody = 65'533;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool became = ::setresgid(kSomebody, kSomebody, kSomebody) == 0 &&
                        ::setresuid(kSomebody, kSomebody, kSomebody) == 0;
    const int status = ask(daemon_->socket(), {.path = "/v1/version"}).status;
    ::_exit(became && status == 403 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The text of a command is in the log of events (R50); there is no audit yet that would have a hash
// instead.
TEST_P(ApiAttacks, K09_ValuesOfVariablesAreInNoRecord) {
  serve_on_socket();
  const auto post = [&](const std::string& path, const json& body) {
    return ask(daemon_->socket(), {.method = "POST", .path = path, .body = body.dump()});
  };
  const std::string box =
      "/v1/sandboxes/" + post("/v1/sandboxes", json::object()).json()["id"].get<std::string>();
  const ApiAnswer ran =
      post(box + "/exec", {{"argv", {"sh", "-c", "echo $K"}}, {"env", {{"K", "canary-value"}}}});
  ASSERT_EQ(ran.json()["stdout"], "canary-value\n") << ran.body;
  ASSERT_EQ(post(box + "/exec", {{"argv", {"/missing"}}, {"env", {{"K", "canary-2"}}}})
                .json()["exit_code"],
            127);
  std::string records = daemon_->log();
  for (const char* path : {"/metrics", "/v1/events", "/v1/sandboxes"}) {
    ApiConnection connection(daemon_->socket());
    connection.send(request_text({.path = path}));
    records += connection.read_until("canary", 300ms);
  }
  const std::string home = place().home(GetParam());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           home, std::filesystem::directory_options::skip_permission_denied)) {
    records += entry.is_regular_file() ? read_text(entry.path()).value_or("") : "";
  }
  EXPECT_GT(records.size(), 1000U);
  EXPECT_NE(records.find("echo $K"), std::string::npos);
  EXPECT_EQ(records.find("canary"), std::string::npos);
}

}  // namespace
}  // namespace carrel::test
