#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/box.h"
#include "support/fixture.h"
#include "support/networked.h"

namespace carrel::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// TLS that the egress process ends, and what it adds to requests: R246 to R250, D36, D37, D39, K06
// to K11, against an internet of the test's own.
class Credentials : public NetworkedTest {
 protected:
  static constexpr const char* kCanary = "canary-7b1f53c2d9-secret";
  static constexpr const char* kBearer = "allowed.test=Authorization: Bearer {{ secret.token }}";

  void SetUp() override {
    NetworkedTest::SetUp();
    if (internet_.has_value()) {
      internet_->trust();
    }
  }

  // Python with get(url, ...), which says what came or what went wrong; it trusts whom the
  // sandbox's variables name.
  [[nodiscard]] static std::string program(const std::string& text) {
    return "import http.client, json, os, socket, ssl, sys, urllib.request\n"
           "def get(url, method='GET', headers={}, data=None):\n"
           "    request = urllib.request.Request(url, data, headers, method=method)\n"
           "    try:\n"
           "        answer = urllib.request.urlopen(request, timeout=10)\n"
           "        print('came', answer.status, answer.headers.get('X-Heard'),\n"
           "              answer.read().decode('latin-1'))\n"
           "    except Exception as error:\n"
           "        text = error.read().decode() if hasattr(error, 'read') else ''\n"
           "        print('failed:', error, text)\n" +
           text;
  }
  [[nodiscard]] Run run(const std::string& text, std::vector<std::string> options) {
    return python(program(text), std::move(options));
  }
  [[nodiscard]] static std::string in_shell(const std::string& text) {
    return "python3 - <<'END'\n" + program(text) + "END";
  }

  void store(const std::string& value = kCanary) {
    const Run stored =
        carrel({"secret", "set", "token"}, {.input = value + "\n", .timeout_seconds = 20});
    ASSERT_EQ(stored.status, 0) << stored.err;
  }
  // What a request had in that header when it came to its server.
  [[nodiscard]] std::vector<std::string> heard(const std::string& name = "authorization") const {
    std::vector<std::string> values;
    for (const nlohmann::json& request : internet_->requests()) {
      values.push_back(
          request["headers"].value(name, request["headers"].value("Authorization", "")));
    }
    return values;
  }
  void kill_egress() {
    for (const HostProcess& process : processes_of("egress")) {
      ASSERT_EQ(::kill(process.pid, SIGKILL), 0);
      ASSERT_TRUE(eventually(std::chrono::seconds(10), [&] {
        const std::vector<HostProcess> all = descendants();
        return std::none_of(all.begin(), all.end(),
                            [&](const HostProcess& other) { return other.pid == process.pid; });
      }));
    }
  }
};
CARREL_AS_BOTH(Credentials);

TEST_P(Credentials, R250_RequestsByTlsAreReadAndDecidedOn) {
  const Run done =
      run("get('https://allowed.test/x')\n"
          "get('https://allowed.test/y')\n"
          "get('https://allowed.test/x', 'POST', data=b'1')\n",
          {"--network", "allow=https:GET:allowed.test/x"});
  EXPECT_THAT(done.out, HasSubstr("came 200")) << done.err;
  EXPECT_THAT(done.out, HasSubstr("hello from allowed.test /x"));
  EXPECT_THAT(done.out, HasSubstr("does not have the path '/y'"));
  EXPECT_THAT(done.out, HasSubstr("does not have the method 'POST'"));
  EXPECT_THAT(internet_->requests(), SizeIs(1));
}

TEST_P(Credentials, R250_TheUsualClientsTrustTheSandboxesAuthority) {
  const Run done = bash(
      "curl -sS https://allowed.test/curl; "
      "command -v node > /dev/null && node -e '"
      "fetch(\"https://allowed.test/node\").then(a => a.text())"
      ".then(t => console.log(t), e => console.log(\"failed\", e))'; "
      "GIT_TRACE_CURL=1 git ls-remote https://allowed.test/git 2>&1 | "
      "grep -o 'SSL certificate verify ok' | head -1",
      {"--network", "allow=https:GET:allowed.test", "--memory", "1g", "--pids", "100", "--timeout",
       "300"});
  EXPECT_THAT(done.out, HasSubstr("hello from allowed.test /curl")) << done.out << done.err;
  EXPECT_THAT(done.out, HasSubstr("hello from allowed.test /node")) << done.out << done.err;
  EXPECT_THAT(internet_->requests(), SizeIs(testing::Ge(3U))) << done.out << done.err;
}

TEST_P(Credentials, R250_TheAuthoritysKeyIsNowhereInTheSandboxOrOnTheDisk) {
  const Box box(GetParam(), {"--network", "allow=https:GET:allowed.test"});
  EXPECT_THAT(box.sh("find /run/carrel; cat /run/carrel/ca.crt").out,
              AllOf(HasSubstr("ca-certificates.crt"), HasSubstr("BEGIN CERTIFICATE"),
                    Not(HasSubstr("PRIVATE"))));
  EXPECT_THAT(box.sh("touch /run/carrel/x; echo > /run/carrel/ca.crt; rm -f /run/carrel/ca.crt; "
                     "mv /run/carrel/ca.crt /tmp")
                  .err,
              testing::ContainsRegex("Read-only|Permission"));
  EXPECT_THAT(box.sh("grep -rl 'PRIVATE[ ]KEY' /run /tmp /workspace 2>/dev/null; true").out,
              IsEmpty());
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(place().home(GetParam()))) {
    if (entry.is_regular_file()) {
      EXPECT_THAT(read_text(entry.path()).value_or(""), Not(HasSubstr("PRIVATE KEY")))
          << entry.path();
    }
  }
}

TEST_P(Credentials, R250_EachSandboxHasAnAuthorityOfItsOwnAndSoHasEachEgressProcess) {
  const Box one(GetParam(), {"--network", "allow=https:GET:allowed.test"});
  const Box two(GetParam(), {"--network", "allow=https:GET:allowed.test"});
  const std::string first = one.sh("cat /run/carrel/ca.crt").out;
  EXPECT_THAT(first, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_NE(first, two.sh("cat /run/carrel/ca.crt").out);
  kill_egress();
  EXPECT_THAT(one.sh(in_shell("get('https://allowed.test/again')\n")).out,
              HasSubstr("hello from allowed.test /again"));
  EXPECT_NE(first, one.sh("cat /run/carrel/ca.crt").out);
}

TEST_P(Credentials, D37_AServerWhoseCertificateIsNotGoodIsRefused) {
  for (const char* port : {"8441", "8442", "8443"}) {
    const Run done =
        run("ssl._create_default_https_context = ssl._create_unverified_context\n"
            "get('https://allowed.test:" +
                std::string(port) + "/')\n",
            {"--network", "allow=https:GET:allowed.test:" + std::string(port)});
    EXPECT_THAT(done.out, HasSubstr("failed")) << port;
  }
  EXPECT_THAT(internet_->requests(), IsEmpty());
  EXPECT_THAT(
      run("get('https://allowed.test:9443/')\n", {"--network", "allow=https:GET:allowed.test:9443"})
          .out,
      HasSubstr("came 200"));
}

TEST_P(Credentials, D39_PathsThatServersReadInDifferentWaysAreRefused) {
  std::string text;
  for (const char* path : {"/a/%2e%2e/secret", "/a/../secret", "//secret", "/a/;x/../../secret",
                           "/a%2fsecret", "/A/x", "/a/..%2fsecret"}) {
    text += "get('https://allowed.test" + std::string(path) + "')\n";
  }
  const Run done = run(text + "get('https://allowed.test/a/b')\n",
                       {"--network", "allow=https:GET:allowed.test/a/*"});
  EXPECT_THAT(done.out, HasSubstr("hello from allowed.test /a/b")) << done.err;
  EXPECT_THAT(internet_->requests(), SizeIs(1)) << done.out;
}

TEST_P(Credentials, TheHostOfARequestIsTheOneThatTheConnectionIsTo) {
  store();
  const std::string text =
      "get('https://allowed.test/', headers={'Host': 'evil.test'})\n"
      "def raw(text):\n"
      "    context = ssl.create_default_context()\n"
      "    sock = socket.create_connection(('allowed.test', 443), 5)\n"
      "    stream = context.wrap_socket(sock, server_hostname='allowed.test')\n"
      "    stream.sendall(text)\n"
      "    print('raw', stream.recv(65536))\n"
      "raw(b'GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')\n"
      "raw(b'GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')\n"
      "raw(b'TRACE / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')\n"
      "raw(b'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n')\n";
  for (const char* network : {"allow=allowed.test", "full"}) {
    const Run done = run(text, {"--network", network, "--credential", kBearer});
    EXPECT_THAT(internet_->requests(), IsEmpty()) << done.out << done.err;
    EXPECT_THAT(done.out, AllOf(HasSubstr("the request is for evil.test"), HasSubstr("raw"),
                                Not(HasSubstr("200 OK"))));
  }
}

// Where TLS is ended there is no HTTP/2, whose requests name their host in a way of their own.
TEST_P(Credentials, D24_NobodySpeaksHttp2WhereRequestsAreRead) {
  store();
  const std::string text =
      "def frame(kind, flags, stream, data):\n"
      "    return (len(data).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, "
      "'big')\n"
      "            + data)\n"
      "def field(name, value):\n"
      "    return b'\\x00' + bytes([len(name)]) + name + bytes([len(value)]) + value\n"
      "def asked(authority):\n"
      "    block = (b'\\x82\\x87\\x84' + field(b':authority', authority))\n"
      "    return (b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + frame(4, 0, 0, b'')\n"
      "            + frame(1, 5, 1, block))\n"
      "for offered in (['h2', 'http/1.1'], ['h2']):\n"
      "    for authority in (b'evil.test', b'allowed.test'):\n"
      "        context = ssl.create_default_context()\n"
      "        context.set_alpn_protocols(offered)\n"
      "        try:\n"
      "            sock = socket.create_connection(('allowed.test', 443), 5)\n"
      "            stream = context.wrap_socket(sock, server_hostname='allowed.test')\n"
      "            print('agreed on', stream.selected_alpn_protocol())\n"
      "            stream.sendall(asked(authority))\n"
      "            print('heard', stream.recv(65536)[:12])\n"
      "        except OSError as error:\n"
      "            print('failed', error)\n"
      "get('https://allowed.test/control')\n";
  const Run done = run(text, {"--network", "allow=allowed.test", "--credential", kBearer});
  EXPECT_THAT(done.out, AllOf(HasSubstr("agreed on http/1.1"), Not(HasSubstr("agreed on h2")),
                              HasSubstr("hello from allowed.test /control")))
      << done.err;
  EXPECT_THAT(internet_->requests(), SizeIs(1));
}

// A proxy with a login would answer 407 to whoever has none. This one is in the sandbox's network
// and in no other, so that whoever reaches it is the sandbox; a login that somebody gives it
// nevertheless goes no further.
TEST_P(Credentials, R247_TheProxyIsForTheSandboxAloneAndPassesNoLoginOn) {
  store();
  const Run done = run(
      "import base64\n"
      "sock = socket.create_connection(('127.0.0.1', 3128), 5)\n"
      "sock.sendall(b'GET http://allowed.test/by-proxy HTTP/1.1\\r\\nHost: allowed.test\\r\\n'\n"
      "             b'Proxy-Authorization: Basic bWluZTptaW5l\\r\\nConnection: "
      "close\\r\\n\\r\\n')\n"
      "print(sock.makefile().read())\n",
      {"--network", "allow=allowed.test,http:allowed.test", "--credential", kBearer});
  EXPECT_THAT(done.out, HasSubstr("hello from allowed.test /by-proxy")) << done.err;
  ASSERT_THAT(internet_->requests(), SizeIs(1));
  const std::string fields = internet_->requests()[0]["fields"].dump();
  EXPECT_THAT(fields, AllOf(Not(HasSubstr("proxy-authorization")), Not(HasSubstr("bWluZ"))));
  EXPECT_NE(std::system("bash -c ': < /dev/tcp/127.0.0.1/3128' 2>/dev/null"), 0);
}

TEST_P(Credentials, R247_TheHeaderIsAddedOutsideAndTheClientsIsReplaced) {
  store();
  const Run done =
      run("get('https://allowed.test/')\n"
          "get('https://ALLOWED.test/', headers={'AUTHORIZATION': 'Bearer mine'})\n",
          {"--network", "allow=allowed.test", "--credential", kBearer});
  EXPECT_THAT(done.out, HasSubstr("came 200")) << done.err;
  EXPECT_THAT(heard(), AllOf(SizeIs(2), Each("Bearer " + std::string(kCanary))));
  for (const nlohmann::json& request : internet_->requests()) {
    EXPECT_THAT(request["fields"].dump(), Not(HasSubstr("mine")));
  }
}

TEST_P(Credentials, R248_OtherPortsPathsMethodsAndPlainHttpGetNothing) {
  store();
  const Run done =
      run("get('https://allowed.test/api/x')\n"
          "get('https://allowed.test/other')\n"
          "get('https://allowed.test/api/x', 'DELETE')\n"
          "get('https://allowed.test:9443/api/x')\n"
          "get('http://allowed.test/api/x')\n"
          "get('https://a.wild.test/api/x')\n"
          "get('https://a.wild.test/api/x', headers={'Host': 'allowed.test'})\n",
          {"--network", "full", "--credential",
           "https:GET:allowed.test/api/*=Authorization: Bearer {{ secret.token }}"});
  const std::vector<std::string> values = heard();
  ASSERT_THAT(values, SizeIs(testing::Ge(6U))) << done.out << done.err;
  EXPECT_EQ(values.front(), "Bearer " + std::string(kCanary));
  for (std::size_t i = 1; i < values.size(); ++i) {
    EXPECT_EQ(values[i], "") << i;
  }
}

TEST_P(Credentials, D36_ARedirectToAnotherServerTakesNothingAlong) {
  store();
  const Run done = run("get('https://allowed.test/redirect-tls')\n",
                       {"--network", "allow=allowed.test,evil.test", "--credential", kBearer});
  ASSERT_THAT(heard(), SizeIs(2)) << done.out;
  EXPECT_THAT(heard()[0], HasSubstr(kCanary));
  EXPECT_EQ(heard()[1], "");
}

TEST_P(Credentials, D36_AServerThatEchoesTheSecretDoesNotTellIt) {
  store();
  const Run done =
      run("get('https://allowed.test/echo')\n"
          "get('https://allowed.test/echo/chunked')\n"
          "get('https://allowed.test/echo/close')\n"
          "get('https://allowed.test/echo', headers={'Range': 'bytes=0-50'})\n"
          "get('https://allowed.test/echo/gzip', headers={'Accept-Encoding': 'gzip'})\n",
          {"--network", "allow=allowed.test", "--credential", kBearer});
  EXPECT_THAT(heard(), AllOf(SizeIs(5), Each(HasSubstr(kCanary)))) << done.out;
  EXPECT_THAT(done.out, AllOf(HasSubstr("came 200 Bearer ****"), Not(HasSubstr("canary"))));
  EXPECT_THAT(done.out, HasSubstr("failed"));  // what is compressed cannot be covered
}

TEST_P(Credentials, R249_AMissingSecretIsAnErrorBeforeAnythingStarts) {
  const Run done =
      carrel({"run", "--network", "allow=allowed.test", "--credential", kBearer, "--", "true"});
  EXPECT_EQ(done.status, 125);
  EXPECT_TRUE(says_one_line(done, "there is no secret 'token'"));
  const Run created =
      carrel({"create", "--network", "allow=allowed.test", "--credential", kBearer});
  EXPECT_NE(created.status, 0);
  EXPECT_THAT(carrel({"ls", "--json"}).out, HasSubstr("\"sandboxes\":[]"));
}

TEST_P(Credentials, R246_K06_K07_TheSecretIsInTheStoreAndNowhereElse) {
  store();
  const Box box(GetParam(), {"--network", "allow=allowed.test", "--credential", kBearer});
  const Run used =
      box.sh(in_shell("get('https://allowed.test/echo')\n"
                      "get('https://allowed.test/echo?' + 'q' * 10)\n"));
  ASSERT_THAT(heard(), Contains(HasSubstr(kCanary))) << used.out;
  const Run inside = box.sh(
      "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
      "grep -rl 'canar[y]' /workspace /tmp /run /etc /home /var 2>/dev/null; true");
  EXPECT_THAT(inside.out, Not(HasSubstr("canary")));
  for (const char* shown : {"info", "logs"}) {
    EXPECT_THAT(carrel({shown, "--json", box.id()}).out, Not(HasSubstr("canary"))) << shown;
  }
  EXPECT_THAT(carrel({"net", "log", "--json", box.id()}).out,
              AllOf(HasSubstr("allowed.test"), Not(HasSubstr("canary"))));
  EXPECT_THAT(carrel({"secret", "ls"}).out, AllOf(HasSubstr("token"), Not(HasSubstr("canary"))));
  ASSERT_EQ(carrel({"snapshot", box.id()}).status, 0);
  for (const HostProcess& process : descendants()) {
    for (const char* file : {"/cmdline", "/environ"}) {
      EXPECT_THAT(read_text("/proc/" + std::to_string(process.pid) + file).value_or(""),
                  Not(HasSubstr("canary")));
    }
  }
  const std::string home = place().home(GetParam());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           home, std::filesystem::directory_options::skip_permission_denied)) {
    if (entry.is_regular_file() && entry.path().string().rfind(home + "/secrets/", 0) != 0) {
      EXPECT_THAT(read_text(entry.path()).value_or(""), Not(HasSubstr("canary"))) << entry.path();
    }
  }
}

TEST_P(Credentials, K10_ARemovedSecretIsRevokedForRunningSandboxes) {
  store();
  const Box box(GetParam(), {"--network", "allow=allowed.test", "--credential", kBearer});
  EXPECT_THAT(box.sh(in_shell("get('https://allowed.test/1')\n")).out, HasSubstr("came 200"));
  store("another-value-of-it");
  EXPECT_THAT(box.sh(in_shell("get('https://allowed.test/2')\n")).out, HasSubstr("came 200"));
  ASSERT_EQ(carrel({"secret", "rm", "token"}).status, 0);
  EXPECT_THAT(box.sh(in_shell("get('https://allowed.test/3')\n")).out,
              HasSubstr("there is no secret 'token'"));
  ASSERT_THAT(heard(), SizeIs(2));
  EXPECT_THAT(heard()[0], HasSubstr(kCanary));
  EXPECT_EQ(heard()[1], "Bearer another-value-of-it");
}

TEST_P(Credentials, K11_WhatIsInsideIsWorthNothingElsewhere) {
  store();
  const std::string placeholder = "Bearer {{ secret.token }}";
  const Run done = run("get('https://a.wild.test/', headers={'Authorization': '" + placeholder +
                           "', 'X-Other': '" + placeholder + "'}, data=b'" + placeholder +
                           "')\n"
                           "get('https://allowed.test/?"
                           "q=%7B%7Bsecret.token%7D%7D', headers={"
                           "'Cookie': '" +
                           placeholder + "'})\n",
                       {"--network", "allow=allowed.test,*.wild.test", "--credential", kBearer});
  ASSERT_THAT(internet_->requests(), SizeIs(2)) << done.out;
  EXPECT_THAT(internet_->requests()[0].dump(), Not(HasSubstr("canary")));
  EXPECT_EQ(internet_->requests()[1]["headers"].value("cookie", ""), placeholder);
  // Another sandbox has nothing of it.
  const Run other =
      run("get('https://allowed.test/', headers={'Authorization': '" + placeholder + "'})\n",
          {"--network", "allow=allowed.test,https:GET:evil.test/x"});
  EXPECT_THAT(other.out, HasSubstr("came 200"));
  EXPECT_EQ(internet_->requests().back()["headers"].value("Authorization", ""), placeholder);
}

TEST_P(Credentials, AProjectsOwnFileCannotTakeASecret) {
  store();
  file("carrel.toml",
       "network = [\"allowed.test\"]\ncredentials = [\"" + std::string(kBearer) + "\"]\n");
  const Run done = carrel({"run", "--", "true"});
  EXPECT_EQ(done.status, 125);
  EXPECT_THAT(done.err, HasSubstr("network"));
  EXPECT_EQ(carrel({"run", "--config", "carrel.toml", "--", "true"}).status, 0);
}

TEST_P(Credentials, ASandboxThatWasNotMadeForItIsNotGivenRulesThatEndTls) {
  const Box box(GetParam(), {"--network", "allow=allowed.test"});
  const Run refused = carrel({"net", "set", box.id(), "allow=https:GET:allowed.test"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("made without certificates"));
  const Box made(GetParam(), {"--network", "allow=https:GET:evil.test/x"});
  ASSERT_EQ(carrel({"net", "set", made.id(), "allow=https:GET:allowed.test/y"}).status, 0);
  EXPECT_THAT(made.sh(in_shell("get('https://allowed.test/y')\n")).out, HasSubstr("came 200"));
}

TEST_P(Credentials, SecretsComeFromInputFilesVariablesAndCommandsAndNeverFromTheCommandLine) {
  EXPECT_EQ(carrel({"secret", "set", "a", "--from-file", file("value", "from-a-file\n")}).status,
            0);
  EXPECT_EQ(carrel({"secret", "set", "b", "--from-command", "echo from-a-command"}).status, 0);
  EXPECT_EQ(carrel({"secret", "set", "c", "--from-env", "PATH"}).status, 0);
  EXPECT_NE(carrel({"secret", "set", "d", "--from-env", "NO_SUCH_VARIABLE"}).status, 0);
  EXPECT_NE(carrel({"secret", "set", "d", "a-value-as-a-word"}).status, 0);
  EXPECT_NE(carrel({"secret", "set", "d", "--from-command", "echo long-enough; false"}).status, 0);
  EXPECT_NE(carrel({"secret", "set", "../d", "--from-command", "echo long-enough"}).status, 0);
  EXPECT_EQ(carrel({"secret", "ls", "--json"}).out.find("from-a"), std::string::npos);
  EXPECT_EQ(read_text(place().home(GetParam()) + "/secrets/a"), "from-a-file");
  EXPECT_EQ(read_text(place().home(GetParam()) + "/secrets/b"), "from-a-command");
  EXPECT_EQ(carrel({"secret", "rm", "a", "b", "c"}).status, 0);
  EXPECT_NE(carrel({"secret", "rm", "a"}).status, 0);
}

TEST_P(Credentials, OneConnectionCarriesManyRequestsAndARefusalComesInItsTurn) {
  const Run done = run(
      "connection = http.client.HTTPSConnection('allowed.test', timeout=10,\n"
      "                                         context=ssl.create_default_context())\n"
      "for path in ('/a', '/bytes/3000000', '/b', '/no', '/a'):\n"
      "    try:\n"
      "        connection.request('GET', path)\n"
      "        answer = connection.getresponse()\n"
      "        print(path, answer.status, len(answer.read()))\n"
      "    except Exception as error:\n"
      "        print(path, 'failed', error)\n"
      "stream = ssl.create_default_context().wrap_socket(\n"
      "    socket.create_connection(('allowed.test', 443), 5), server_hostname='allowed.test')\n"
      "stream.sendall(b'GET /bytes/500000 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'\n"
      "               b'GET /no HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')\n"
      "both = b''\n"
      "while piece := stream.recv(65536):\n"
      "    both += piece\n"
      "print('both', both.count(b'x') >= 500000, both.rfind(b'HTTP/1.1 403') > 500000)\n",
      {"--network", "allow=https:GET:allowed.test/a,https:GET:allowed.test/b*"});
  EXPECT_THAT(done.out, HasSubstr("/bytes/3000000 200 3000000")) << done.out << done.err;
  EXPECT_THAT(done.out, HasSubstr("/b 200"));
  EXPECT_THAT(done.out, HasSubstr("/no 403"));
  EXPECT_THAT(done.out, HasSubstr("both True True"));
}

TEST_P(Credentials, BodiesOfAnySizeGoThrough) {
  store();
  const Run done = bash(
      "head -c 5000000 /dev/zero > /tmp/zeros; "
      "curl -sS -o /dev/null -w '%{http_code} ' --data-binary @/tmp/zeros https://allowed.test/up; "
      "curl -sS -o /dev/null -w '%{http_code} ' -T /tmp/zeros https://allowed.test/put; "
      "curl -sS https://allowed.test/bytes/20000000 | wc -c; "
      "curl -sS -I https://allowed.test/head | head -1",
      {"--network", "allow=allowed.test", "--credential", kBearer});
  EXPECT_THAT(done.out, HasSubstr("200 200 20000000\nHTTP/1.1 200")) << done.err;
  const auto requests = internet_->requests();
  ASSERT_GE(requests.size(), 2U);
  EXPECT_EQ(requests[0]["body"], 5000000);
  EXPECT_EQ(requests[1]["body"], 5000000);
}

TEST_P(Credentials, ATightenedPolicyEndsWhatWouldHaveToBeReadNow) {
  const Box box(GetParam(), {"--network", "allow=tcp:allowed.test:7000,https:GET:evil.test/x"});
  Process client(launch({"exec", box.id(), "--", "python3", "-c",
                         "import socket\n"
                         "sock = socket.create_connection(('allowed.test', 7000), 5)\n"
                         "sock.settimeout(None)\n"
                         "sock.sendall(b'ping')\n"
                         "print(sock.recv(10), flush=True)\n"
                         "try:\n"
                         "    print('got', sock.recv(10))\n"
                         "except OSError as error:\n"
                         "    print('cut', error)\n"}));
  ASSERT_TRUE(client.wait_for_output("ping", std::chrono::seconds(10)));
  ASSERT_EQ(carrel({"net", "set", box.id(), "allow=https:GET:allowed.test:7000/x"}).status, 0);
  EXPECT_THAT(client.wait(std::chrono::seconds(10)).out,
              testing::AnyOf(HasSubstr("cut"), HasSubstr("got b''")));
}

TEST_P(Credentials, ExplainAndLogTellAboutRequests) {
  const Box box(GetParam(), {"--network", "allow=https:GET:allowed.test/x"});
  EXPECT_EQ(carrel({"net", "explain", box.id(), "https://allowed.test/x"}).status, 0);
  const Run denied = carrel({"net", "explain", box.id(), "https://allowed.test/y"});
  EXPECT_EQ(denied.status, 125);
  EXPECT_THAT(denied.out, HasSubstr("does not have the path '/y'"));
  const Run asked =
      box.sh(in_shell("get('https://allowed.test/x')\nget('https://allowed.test/y')\n"));
  const Run log = carrel({"net", "log", box.id()});
  EXPECT_THAT(log.out, HasSubstr("request allowed  allowed.test:443 (11.1.1.1) (GET /x)"))
      << asked.out;
  EXPECT_THAT(log.out, HasSubstr("request denied  allowed.test:443 (11.1.1.1) (GET /y)"));
}

TEST_P(Credentials, AWebSocketPassesWhereItsRequestIsAllowed) {
  const Run done =
      run("context = ssl.create_default_context()\n"
          "sock = socket.create_connection(('allowed.test', 443), 5)\n"
          "stream = context.wrap_socket(sock, server_hostname='allowed.test')\n"
          "stream.sendall(b'GET /socket HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: "
          "Upgrade\\r\\n'\n"
          "               b'Upgrade: websocket\\r\\n\\r\\n')\n"
          "print(stream.recv(4096))\n"
          "stream.sendall(b'\\x00ping')\n"
          "print(stream.recv(4096))\n",
          {"--network", "allow=https:GET:allowed.test/socket"});
  EXPECT_THAT(done.out, HasSubstr("101")) << done.err;
  EXPECT_THAT(done.out, HasSubstr("ping"));
}

}  // namespace
}  // namespace carrel::test
