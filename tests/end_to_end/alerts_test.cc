// Too much of what should not happen is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class AlertsRaised : public ServeTest {
 protected:
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }
  std::string logs(const std::string& box) { return carrel({"logs", "--json", id_of(box)}).out; }
};
CARREL_AS_BOTH(AlertsRaised);

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

TEST_P(AlertsRaised, DeniedConnectionsAreAnAlert) {
  serve();
  const std::string box = create({{"network", {"allowed.test"}}});
  shell(box,
        "for i in 1 2 3 4 5 6; do timeout 5 bash -c \"exec 3<>/dev/tcp/evil$i.test/80\"; done");
  ASSERT_TRUE(eventually(10s, [&] { return logs(box).find("\"alert\"") != std::string::npos; }))
      << logs(box);
  EXPECT_THAT(logs(box), HasSubstr("\"kind\":\"network\""));
}

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
