// Group K: what is tried with what the host writes down of sandboxes and their clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/tenants.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class RecordAttacks : public TenantsTest {
 protected:
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }
  [[nodiscard]] std::string events_file() const {
    return place().home(GetParam()) + "/events.jsonl";
  }
  // What is written down: the events of all sandboxes, or the daemon's log.
  [[nodiscard]] std::vector<json> records(const std::string& text) const {
    std::vector<json> all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      all.push_back(json::parse(line, nullptr, false));
      EXPECT_TRUE(all.back().is_object()) << line;
      EXPECT_LT(line.size(), 4096U) << line.substr(0, 200);
      // No control character, and nothing that a terminal reads from right to left.
      EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) {
        return c >= ' ' && c <= '~';
      })) << line;
    }
    return all;
  }
  [[nodiscard]] std::vector<json> alerts_of(const std::string& box) const {
    std::vector<json> found;
    for (const json& event : records(read_text(events_file()).value_or(""))) {
      if (event.value("event", "") == "alert" && event.value("sandbox", "") == id_of(box)) {
        found.push_back(event);
      }
    }
    return found;
  }
};
CARREL_AS_BOTH(RecordAttacks);

std::string percent(const std::string& text) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    encoded += {'%', kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  return encoded;
}

TEST_P(RecordAttacks, K01_NothingThatIsWrittenDownBeginsARecordOfItsOwn) {
  serve();
  const std::string box = create();
  const std::string forged = "\n{\"event\":\"login\",\"sandbox\":\"" + id_of(box) +
                             "\",\"user\":\"admin\"}\r\x1b]0;t\x07\xe2\x80\xae\xff";
  const std::string valid = forged.substr(0, forged.size() - 1);  // as JSON can say it
  for (const std::string& text :
       {"true" + valid, "echo '" + valid + "'", valid, "true #" + std::string(1 << 20, 'x'),
        "cd /tmp; mkdir -p \"$(printf '" + std::string("a\\n{}") + "')\"; cd a*; pwd"}) {
    shell(box, text);
  }
  EXPECT_EQ(post(box + "/exec", {{"argv", {"true", valid}}}).status, 200);
  post(box + "/shell", {{"command", "true"}, {"session", valid.substr(0, 40)}});
  for (const std::string& path : {forged, "../" + forged, std::string(1 << 12, 'y') + "/.."}) {
    EXPECT_NE(get(box + "/files?path=" + percent(path)).status, 200);
    ask(daemon_->socket(),
        {.method = "PUT", .path = box + "/files?path=" + percent(path), .body = "x"});
  }
  const ApiAnswer odd = ask(
      daemon_->socket(),
      {.path = "/v1/health?" + percent(valid),
       .headers = {"user-agent: {\"event\":\"login\"}", "traceparent: 00-{\"event\":\"login\"}"}});
  EXPECT_EQ(odd.status, 400);
  const ApiAnswer unknown = get("/v1/sandboxes/" + percent(valid));
  EXPECT_EQ(unknown.status, 404);
  remove(box);
  const auto has_login = [](const std::vector<json>& all) {
    return std::any_of(all.begin(), all.end(),
                       [](const json& one) { return one.value("event", "") == "login"; });
  };
  const std::vector<json> events = records(read_text(events_file()).value_or(""));
  EXPECT_GT(events.size(), 14U);
  EXPECT_FALSE(has_login(events));
  EXPECT_TRUE(std::any_of(events.begin(), events.end(), [](const json& one) {
    return one.value("command_bytes", 0) > (1 << 20) && one.value("cut", false);
  })) << "the long command is there, and cut";
  const std::vector<json> log = records(daemon_->log());
  EXPECT_GT(log.size(), 14U);
  EXPECT_FALSE(has_login(log));
  // As a person reads them, each is one line without a word to the terminal.
  const std::string shown = carrel({"logs", id_of(box)}).out;
  EXPECT_EQ(shown.find_first_of("\r\x1b\x07"), std::string::npos) << shown;
  EXPECT_THAT(shown, Not(HasSubstr("\n{")));
  EXPECT_THAT(shown, Not(HasSubstr("\xe2\x80\xae")));
}

TEST_P(RecordAttacks, K05_WhoAskedIsWhoseTokenItWas) {
  const std::string mine = token("mine");
  const std::string admin = token("admin");
  serve_tenants();
  const ApiAnswer made = ask(
      daemon_->port(),
      {.method = "POST",
       .path = "/v1/sandboxes",
       .body = "{}",
       .headers = {bearer(mine), "x-forwarded-for: 203.0.113.9", "x-real-ip: 203.0.113.9",
                   "forwarded: for=203.0.113.9;by=admin", "x-forwarded-user: admin",
                   "x-user: admin", "x-remote-user: admin", "carrel-owner: admin", "from: admin"}});
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id = made.json()["id"];
  EXPECT_EQ(
      ask(daemon_->port(), {.path = "/v1/sandboxes/" + id, .headers = {bearer(admin)}}).status,
      404);
  EXPECT_EQ(ask(daemon_->port(), {.path = "/v1/sandboxes/" + id, .headers = {bearer(mine)}}).status,
            200);
  const std::string log = daemon_->log();
  EXPECT_THAT(log, HasSubstr("\"status\":201,\"owner\":\"mine\""));
  EXPECT_THAT(log, Not(HasSubstr("203.0.113.9")));
  EXPECT_THAT(read_text(events_file()).value_or(""), Not(HasSubstr("203.0.113.9")));
}

TEST_P(RecordAttacks, K13_AFloodIsAFewAlertsWithTheWholeCount) {
  serve();
  const std::string box = create();
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(get(box + "/files?path=/workspace/../../etc/shadow").status, 403);
  }
  ASSERT_TRUE(eventually(5s, [&] { return alerts_of(box).size() == 1; }));
  EXPECT_EQ(alerts_of(box)[0]["count"], 5);
  // The rest of it is in the next one, when the window of the first is over.
  ASSERT_TRUE(eventually(15s, [&] { return alerts_of(box).size() == 2; }));
  EXPECT_EQ(alerts_of(box)[1]["count"], 295);
  EXPECT_THAT(get("/metrics").body, HasSubstr("carrel_alerts_total 2\n"));
}

TEST_P(RecordAttacks, K14_TheLogIsNoWayToAnotherFileAndIsCutInOnePiece) {
  const std::string id = carrel({"create", "--name", "one"}).out.substr(0, 36);
  const std::string secret =
      "{\"event\":\"stop\",\"sandbox\":\"" + id + "\",\"reason\":\"of somebody else\"}\n";
  const std::string canary = file("canary", secret);
  ASSERT_EQ(::unlink(events_file().c_str()), 0);
  ASSERT_EQ(::symlink(canary.c_str(), events_file().c_str()), 0);
  EXPECT_EQ(carrel({"sh", "one", "echo awake"}).out, "awake\n");
  EXPECT_EQ(read_text(canary), secret);
  EXPECT_THAT(carrel({"logs", "--json", "one"}).out, Not(HasSubstr("of somebody else")));
  ASSERT_EQ(::unlink(events_file().c_str()), 0);
  // One that has grown too long loses its older half, and no line of it is cut.
  std::string much;
  for (int i = 0; much.size() <= 16U << 20; ++i) {
    much += "{\"event\":\"old\",\"number\":" + std::to_string(i) + "}\n";
  }
  write_text(events_file(), much, 0600);
  place().give(events_file(), GetParam());
  EXPECT_EQ(carrel({"sh", "one", "true"}).status, 0);
  const std::string left = read_text(events_file()).value_or("");
  EXPECT_LT(left.size(), much.size() * 3 / 4);
  EXPECT_GT(left.size(), much.size() / 4);
  EXPECT_TRUE(json::parse(left.substr(0, left.find('\n')), nullptr, false).is_object());
  EXPECT_THAT(left, HasSubstr("\"event\":\"result\""));
}

}  // namespace
}  // namespace carrel::test
