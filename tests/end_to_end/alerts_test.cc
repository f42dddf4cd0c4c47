// Too much of what should not happen is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>

#include "support/process.h"
#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

// Says of each event that it is told what it is.
constexpr const char* kListener = R"(
import http.server, json
class Hook(http.server.BaseHTTPRequestHandler):
  def do_POST(self):
    event = json.loads(self.rfile.read(int(self.headers['content-length'])))
    self.send_response(200)
    self.end_headers()
    print(event['event'], event.get('kind'), event.get('count'), flush=True)
  def log_message(self, *args): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Hook)
print('port', server.server_port, flush=True)
server.serve_forever()
)";

constexpr const char* kForkUntilRefused = R"(
import os, signal, sys, time
children = []
try:
  while True:
    child = os.fork()
    if child == 0: signal.pause()
    children.append(child)
except OSError: pass
time.sleep(0.4)  # without control groups it is seen by whoever looks from time to time
for child in children:
  os.kill(child, signal.SIGKILL)
  os.waitpid(child, 0)
sys.exit(3)
)";

class AlertsRaised : public ServeTest {
 protected:
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }
  std::string logs(const std::string& box) { return carrel({"logs", "--json", id_of(box)}).out; }
};
CARREL_AS_BOTH(AlertsRaised);

// R284
TEST_P(AlertsRaised, FiveRefusedPathsInTenSecondsAreAnAlert) {
  serve();
  const std::string box = create();
  const std::string other = create();
  ApiConnection listener(daemon_->socket());
  ASSERT_TRUE(listener.send(request_text({.path = "/v1/events"})));
  ASSERT_THAT(listener.read_until("200 OK", 5s), HasSubstr("200 OK"));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(get(box + "/files?path=/workspace/../../etc/shadow").status, 403);
    EXPECT_EQ(get(other + "/files?path=/workspace/../../etc/shadow").status, 403);
  }
  EXPECT_EQ(get(box + "/files?path=/workspace/../../etc/shadow").status, 403);
  const std::string heard = listener.read_until("event: alert", 10s);
  EXPECT_THAT(heard, HasSubstr("event: alert"));
  ASSERT_TRUE(eventually(5s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }));
  const std::string told = logs(box);
  EXPECT_THAT(told, HasSubstr("\"kind\":\"path\",\"count\":5,\"window_ms\":10000"));
  EXPECT_THAT(carrel({"logs", id_of(box)}).out, HasSubstr("alert: 5 times path in 10 s"));
  EXPECT_THAT(logs(other), Not(HasSubstr("\"alert\"")));
  EXPECT_THAT(get("/metrics").body, HasSubstr("carrel_alerts_total 1\n"));
}

// R284
TEST_P(AlertsRaised, DeniedConnectionsAreAnAlert) {
  serve();
  const std::string box = create({{"network", {"allowed.test"}}});
  shell(box,
        "for i in 1 2 3 4 5 6; do timeout 5 bash -c \"exec 3<>/dev/tcp/evil$i.test/80\"; done");
  ASSERT_TRUE(eventually(10s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }))
      << logs(box);
  EXPECT_THAT(logs(box), HasSubstr("\"kind\":\"network\""));
}

// R284
TEST_P(AlertsRaised, LimitsThatAreReachedAgainAndAgainAreAnAlert) {
  serve();
  const std::string box = create({{"pids", 20}});
  const json argv = {"/usr/bin/python3", "-c", kForkUntilRefused};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(post(box + "/exec", {{"argv", argv}}).json().value("exit_code", 0), 3);
  }
  ASSERT_TRUE(eventually(10s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }))
      << logs(box);
  EXPECT_THAT(logs(box), HasSubstr("\"kind\":\"limit\""));
}

#if defined(__x86_64__)
// R284
TEST_P(AlertsRaised, ForbiddenSystemCallsAreAnAlert) {
  serve();
  const std::string box = create();
  // getpid in the table of x32, where no call is allowed.
  const json argv = {"/usr/bin/python3", "-c",
                     "import ctypes; ctypes.CDLL(None).syscall(0x40000027)"};
  for (int i = 0; i < 5; ++i) {
    const ApiAnswer end = post(box + "/exec", {{"argv", argv}});
    EXPECT_EQ(end.json().value("exit_code", 0), 128 + SIGSYS) << end.body;
  }
  ASSERT_TRUE(eventually(10s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }))
      << logs(box);
  EXPECT_THAT(logs(box), HasSubstr("\"kind\":\"syscall\""));
}
#endif

// R284
TEST_P(AlertsRaised, CommandsThatFailAreAnAlertWhenTheyAreTwenty) {
  serve();
  const std::string box = create();
  for (int i = 0; i < 19; ++i) {
    shell(box, "false");
  }
  EXPECT_TRUE(
      stays_false_for(1s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }));
  shell(box, "false");
  ASSERT_TRUE(eventually(10s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }))
      << logs(box);
  EXPECT_THAT(logs(box), HasSubstr("\"kind\":\"failure\",\"count\":20"));
}

// R284
TEST_P(AlertsRaised, WebhookIsToldOfAnAlert) {
  Launch program;
  program.program = "/usr/bin/python3";
  program.arguments = {"-c", kListener};
  program.directory = "/";
  Process listener(program);
  ASSERT_TRUE(listener.wait_for_output("\n", 10s));
  const std::string port = listener.out().substr(5, listener.out().find('\n') - 5);
  serve({"--webhook", "http://127.0.0.1:" + port + "/hook", "--webhook-secret-file",
         file("secret", "0123456789abcdef\n")});
  const std::string box = create();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(get(box + "/files?path=/workspace/../../etc/shadow").status, 403);
  }
  EXPECT_TRUE(listener.wait_for_output("alert path 5\n", 10s)) << listener.out();
}

// R284
TEST_P(AlertsRaised, RequestsThatAreRefusedAtTheDoorAreAnAlert) {
  serve();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(
        ask(daemon_->socket(), {.path = "/v1/sandboxes", .headers = {"origin: http://evil.test"}})
            .status,
        403);
  }
  EXPECT_TRUE(eventually(10s, [&] {
    return get("/metrics").body.find("carrel_alerts_total 1\n") != std::string::npos;
  }));
}

}  // namespace
}  // namespace carrel::test
