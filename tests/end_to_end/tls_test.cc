// The daemon over TLS, and what it tells of requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <string>
#include <thread>
#include <vector>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// An authority and a certificate of it for this host, in the directory $1.
constexpr const char* kMakeCertificate = R"(cd "$1" && exec 2>/dev/null
[ -e ca.pem ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
  -subj /CN=authority -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$2 -keyout own.key \
  -out own.csr &&
echo subjectAltName=DNS:localhost,IP:127.0.0.1 > ext &&
openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
  -out own.pem && chmod 600 own.key && chmod 644 own.pem)";

// Asks as a client that believes that authority alone: the name in the certificate, then each
// answer's status and length.
constexpr const char* kClient = R"(
import base64, http.client, json, os, ssl, socket, sys
port, authority, token = int(sys.argv[1]), sys.argv[2], sys.argv[3]
context = ssl.create_default_context(cafile=authority)
connection = http.client.HTTPSConnection('localhost', port, context=context, timeout=20)
connection.connect()
print(dict(x[0] for x in connection.sock.getpeercert()['subject'])['commonName'], connection.sock.version())
headers = {'authorization': 'Bearer ' + token, 'content-type': 'application/json'}
def ask(method, path, body=None):
    connection.request(method, path, body if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    return answer.status, data
if len(sys.argv) > 4:
    status, data = ask('POST', '/v1/sandboxes', {})
    box = '/v1/sandboxes/' + json.loads(data)['id']
    print(status)
    status, data = ask('POST', box + '/exec', {'argv': ['head', '-c', '300000', '/dev/zero']})
    print(status, len(json.loads(data)['stdout']))
    status, data = ask('PUT', box + '/files?path=a', 'x' * 200000)
    print(status)
    status, data = ask('POST', box + '/commands', {'argv': ['cat'], 'terminal': True, 'stdin': True})
    command = box + '/commands/' + json.loads(data)['id']
    # A terminal by WebSocket: two frames at once come in one record.
    raw = context.wrap_socket(socket.create_connection(('127.0.0.1', port), 20), server_hostname='localhost')
    raw.sendall(('GET %s/terminal HTTP/1.1\r\nhost: localhost:%d\r\nauthorization: Bearer %s\r\n'
                 'connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n'
                 'sec-websocket-key: %s\r\n\r\n' % (command, port, token,
                 base64.b64encode(os.urandom(16)).decode())).encode())
    frame = lambda text: bytes([0x82, 0x80 | len(text), 0, 0, 0, 0]) + text
    raw.sendall(frame(b'one\n') + frame(b'two\n'))
    heard = b''
    while heard.count(b'two') < 2:
        piece = raw.recv(65536)
        if not piece: break
        heard += piece
    print(heard.count(b'two'))
    print(ask('DELETE', box)[0])
else:
    print(ask('GET', '/v1/version')[0])
)";

class Tls : public ServeTest {
 protected:
  void SetUp() override {
    ServeTest::SetUp();
    work_ = place().work(GetParam());
    tokens_ = work_ + "/tokens";
    const Run made = carrel({"serve", "--new-token", "one", "--token-file", tokens_});
    token_ = made.out.substr(0, made.out.find('\n'));
    make_certificate("first");
  }

  void make_certificate(const std::string& name) const {
    EXPECT_EQ(run_program("/bin/sh", {"-c", kMakeCertificate, "sh", work_, name}).status, 0);
    for (const char* one : {"/own.key", "/own.pem", "/ca.pem"}) {
      place().give(work_ + one, GetParam());
    }
  }
  static Run run_program(const std::string& program, std::vector<std::string> arguments) {
    Launch launch;
    launch.program = program;
    launch.arguments = std::move(arguments);
    launch.directory = "/";
    launch.environment = {"PATH=/usr/bin:/bin"};
    Process process(launch);
    return process.wait(40s);
  }
  [[nodiscard]] std::vector<std::string> options() const {
    return {"--listen",   "tcp:127.0.0.1:0",  "--token-file", tokens_,
            "--tls-cert", work_ + "/own.pem", "--tls-key",    work_ + "/own.key"};
  }
  Run ask_by_tls(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"-c", kClient, std::to_string(daemon_->port()),
                                      work_ + "/ca.pem", token_};
    words.insert(words.end(), more.begin(), more.end());
    return run_program("/usr/bin/python3", words);
  }

  std::string work_;
  std::string tokens_;
  std::string token_;
};
CARREL_AS_BOTH(Tls);

TEST_P(Tls, WholeApiIsServedWithTheCertificate) {
  serve(options());
  const Run all = ask_by_tls({"all"});
  EXPECT_EQ(all.out, "first TLSv1.3\n201\n200 300000\n200\n2\n204\n") << all.err << daemon_->log();
}

// J22
TEST_P(Tls, PlainClientAndOldProtocolGetNothing) {
  serve(options());
  const ApiAnswer plain = ask(daemon_->port(), {.path = "/v1/health"});
  EXPECT_EQ(plain.status, 0);
  const Run old = run_program(
      "/bin/sh", {"-c", "openssl s_client -tls1_1 -cipher ALL:@SECLEVEL=0 -connect 127.0.0.1:" +
                            std::to_string(daemon_->port()) + " </dev/null 2>&1"});
  EXPECT_THAT(old.out, HasSubstr("no peer certificate available"));
  // Nor do ciphers that hide nothing or say nothing about who is there.
  const auto with_ciphers = [&](const std::string& ciphers) {
    return run_program("/bin/sh", {"-c", "openssl s_client -tls1_2 -cipher " + ciphers +
                                             " -connect 127.0.0.1:" +
                                             std::to_string(daemon_->port()) + " </dev/null 2>&1"})
        .out;
  };
  EXPECT_THAT(with_ciphers("ECDHE"), HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_THAT(with_ciphers("aNULL:eNULL:@SECLEVEL=0"), HasSubstr("no peer certificate available"));
  EXPECT_EQ(ask_by_tls().out, "first TLSv1.3\n200\n");
}

TEST_P(Tls, NewCertificateIsTakenOnReloadAndABadOneIsNot) {
  serve(options());
  EXPECT_EQ(ask_by_tls().out, "first TLSv1.3\n200\n");
  make_certificate("second");
  ::kill(daemon_->pid(), SIGHUP);
  EXPECT_TRUE(eventually(5s, [&] { return ask_by_tls().out == "second TLSv1.3\n200\n"; }));
  write_text(work_ + "/own.pem", "nonsense");
  ::kill(daemon_->pid(), SIGHUP);
  EXPECT_TRUE(eventually(
      5s, [&] { return daemon_->log().find("read the certificate in") != std::string::npos; }));
  EXPECT_EQ(ask_by_tls().out, "second TLSv1.3\n200\n");
}

// J22
TEST_P(Tls, KeyThatOthersCanReadIsRefused) {
  auto refused = [&](const std::string& why) {
    std::vector<std::string> words = options();
    words.insert(words.begin(), "serve");
    return says_one_line(carrel(words, {.timeout_seconds = 10}), why);
  };
  ::chmod((work_ + "/own.key").c_str(), 0640);
  EXPECT_TRUE(refused("others can read '" + work_ + "/own.key'"));
  ::chmod((work_ + "/own.key").c_str(), 0600);
  ::chmod((work_ + "/own.pem").c_str(), 0666);
  EXPECT_TRUE(refused("others can write to '" + work_ + "/own.pem'"));
  ::chmod((work_ + "/own.pem").c_str(), 0644);
  EXPECT_TRUE(says_one_line(carrel({"serve", "--listen", "tcp:127.0.0.1:0", "--token-file", tokens_,
                                    "--tls-cert", work_ + "/own.pem"}),
                            "TLS needs a certificate and its key"));
  // The key of another.
  EXPECT_EQ(
      run_program("/bin/sh",
                  {"-c", "cp \"$1/ca.key\" \"$1/own.key\"; chmod 600 \"$1/own.key\"", "sh", work_})
          .status,
      0);
  EXPECT_TRUE(refused("use the key in"));
}

constexpr const char* kCollector = R"(
import http.server, json, sys
class Collector(http.server.BaseHTTPRequestHandler):
  def do_POST(self):
    body = json.loads(self.rfile.read(int(self.headers['content-length'])))
    self.send_response(200)
    self.end_headers()
    for resource in body['resourceSpans']:
      for scope in resource['scopeSpans']:
        for span in scope['spans']:
          took = int(span['endTimeUnixNano']) - int(span['startTimeUnixNano'])
          values = {a['key']: list(a['value'].values())[0] for a in span['attributes']}
          print(self.path, span['traceId'], span['spanId'], span.get('parentSpanId', '-'),
                span['name'].replace(' ', '_'), span['kind'], values.get('process.exit.code', '-'),
                values.get('http.response.status_code', '-'), 'good' if 0 < took < 60e9 else 'bad', flush=True)
  def log_message(self, *args): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Collector)
print('port', server.server_port, flush=True)
server.serve_forever()
)";

class Traced : public ServeTest {};
CARREL_AS_BOTH(Traced);

TEST_P(Traced, CollectorIsToldOfRequestsAndTheirCommands) {
  Launch program;
  program.program = "/usr/bin/python3";
  program.arguments = {"-c", kCollector};
  program.directory = "/";
  Process collector(program);
  ASSERT_TRUE(collector.wait_for_output("\n", 10s));
  const std::string port = collector.out().substr(5, collector.out().find('\n') - 5);
  serve({"--otlp", "http://127.0.0.1:" + port});
  const std::string box = create();
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  EXPECT_EQ(post(box + "/exec", {{"argv", {"false"}}},
                 {"traceparent: 00-" + trace + "-00f067aa0ba902b7-01"})
                .status,
            200);
  // Not recorded, because its client does not want it.
  const std::string hidden = "5bf92f3577b34da6a3ce929d0e0e4736";
  EXPECT_EQ(post(box + "/shell", {{"command", "true"}},
                 {"traceparent: 00-" + hidden + "-00f067aa0ba902b7-00"})
                .status,
            200);
  ASSERT_TRUE(collector.wait_for_output("POST_/v1/sandboxes/{id}/exec 2 - 200 good", 10s))
      << collector.out() << collector.err();
  const std::string told = collector.out();
  EXPECT_THAT(told, HasSubstr(" POST_/v1/sandboxes 2 - 201 good"));
  EXPECT_THAT(told, testing::Not(HasSubstr(hidden)));
  // The command is within the request, and the request within what its client did.
  const std::string mark = " 00f067aa0ba902b7 POST_/v1/sandboxes/{id}/exec";
  const std::size_t at = told.find(mark);
  ASSERT_NE(at, std::string::npos) << told;
  const std::string span = told.substr(at - 16, 16);
  EXPECT_THAT(told, HasSubstr("/v1/traces " + trace + " " + span + mark));
  EXPECT_THAT(told, HasSubstr(" " + span + " exec 1 1 - good"));
  EXPECT_TRUE(eventually(5s, [&] {
    return get("/metrics").body.find("\ncarrel_trace_spans_total 0\n") == std::string::npos;
  }));
}

TEST_P(Traced, CollectorThatIsNotThereStopsNobody) {
  // A port that nobody listens on.
  serve({"--otlp", "http://127.0.0.1:1"});
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(get("/v1/version").status, 200);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, patient(5s));
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_TRUE(
      says_one_line(carrel({"serve", "--otlp", "http://collector.example"}), "unencrypted"));
}

}  // namespace
}  // namespace carrel::test
