// The daemon and its API: sandboxes, commands, files, lives and deaths.
#include "support/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Serve : public ServeTest {};
CARREL_AS_BOTH(Serve);

// R179, J17
TEST_P(Serve, SocketIsPrivateAndAnswers) {
  serve();
  struct stat info{};
  ASSERT_EQ(::stat(daemon_->socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(get("/v1/health").json()["status"], "ok");
  EXPECT_EQ(get("/v1/ready").status, 200);
  EXPECT_THAT(get("/metrics").body, HasSubstr("carrel_sandboxes 0\n"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("carrel_sandboxes_limit 100\n"));
  EXPECT_EQ(get("/v1/nothing").status, 404);
  const ApiAnswer wrong = remove("/v1/sandboxes");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, GET");
}

TEST_P(Serve, PublishedDocumentIsTheOneThatIsServed) {
  serve();
  const auto published = read_text(CARREL_OPENAPI);
  ASSERT_TRUE(published.has_value());
  EXPECT_TRUE(get("/v1/openapi.json").json() == json::parse(*published))
      << "carrel serve --openapi > docs/openapi.json";
  EXPECT_EQ(carrel({"serve", "--openapi"}).out, *published);
}

// R184, R186, B-43
TEST_P(Serve, SandboxIsThatOfTheCommandLineAndItsEndIsRemembered) {
  serve();
  const std::string box = create({{"name", "one"}, {"memory", "256m"}});
  const std::string id = box.substr(box.rfind('/') + 1);
  EXPECT_EQ(get(box).json()["settings"]["memory"], "256m");
  EXPECT_EQ(get(box).json()["desired_state"], "running");
  EXPECT_THAT(carrel({"ls"}).out, HasSubstr(id));
  EXPECT_EQ(carrel({"sh", "one", "echo from outside > note"}).status, 0);
  EXPECT_EQ(shell(box, "cat note")["stdout"], "from outside\n");
  EXPECT_EQ(get("/v1/sandboxes?name=one").json()["sandboxes"][0]["id"], id);
  EXPECT_EQ(post("/v1/sandboxes", {{"name", "one"}}).status, 409);
  EXPECT_EQ(remove(box).status, 204);
  EXPECT_EQ(remove(box).status, 204);
  EXPECT_EQ(get(box).json()["state"], "ended");
  EXPECT_EQ(get(box).json()["reason"], "it was removed");
  const ApiAnswer late = post(box + "/shell", {{"command", "true"}});
  EXPECT_EQ(late.status, 410);
  EXPECT_EQ(late.json()["code"], "gone");
  EXPECT_THAT(late.json()["detail"].get<std::string>(), HasSubstr("it was removed"));
  const ApiAnswer unknown = get("/v1/sandboxes/00000000-0000-4000-8000-000000000000");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("Sandbox 00000000-0000-4000-8000-000000000000 not found"));
}

TEST_P(Serve, ListComesPageByPage) {
  serve();
  std::set<std::string> made;
  for (int i = 0; i < 5; ++i) {
    made.insert(create());
  }
  std::set<std::string> seen;
  std::string cursor;
  int pages = 0;
  do {
    const json page =
        get("/v1/sandboxes?limit=2" + (cursor.empty() ? "" : "&cursor=" + cursor)).json();
    for (const json& box : page["sandboxes"]) {
      seen.insert("/v1/sandboxes/" + box["id"].get<std::string>());
    }
    cursor = page["next_cursor"].is_null() ? "" : page["next_cursor"].get<std::string>();
  } while (++pages < 10 && !cursor.empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(seen, made);
  EXPECT_EQ(get("/v1/sandboxes?cursor=nonsense").status, 400);
}

// R160
TEST_P(Serve, ShellKeepsItsStateAndExecIsSeparate) {
  serve();
  const std::string box = create();
  shell(box, "cd /tmp; export A=1");
  EXPECT_EQ(shell(box, "pwd; echo $A")["stdout"], "/tmp\n1\n");
  json other = post(box + "/shell", {{"command", "pwd"}, {"session", "b"}}).json();
  EXPECT_EQ(other["stdout"], "/workspace\n");
  const json ran = post(box + "/exec", {{"argv", {"bash", "-c", "cat; echo $X; pwd; exit 3"}},
                                        {"stdin", "in"},
                                        {"env", {{"X", "y"}}},
                                        {"workdir", "/tmp"}})
                       .json();
  EXPECT_EQ(ran["stdout"], "iny\n/tmp\n");
  EXPECT_EQ(ran["exit_code"], 3);
  const json late =
      post(box + "/shell", {{"command", "echo a; sleep 20"}, {"timeout", 0.5}}).json();
  EXPECT_EQ(late["timed_out"], true);
  EXPECT_EQ(late["exit_code"], 124);
  EXPECT_EQ(late["stdout"], "a\n");
}

// R61
TEST_P(Serve, OneShotRunsAndLeavesNothing) {
  serve();
  const ApiAnswer ran = post("/v1/run", {{"command", "echo $((6*7))"}, {"memory", "128m"}});
  EXPECT_EQ(ran.status, 200) << ran.body;
  EXPECT_EQ(ran.json()["stdout"], "42\n");
  EXPECT_EQ(get("/v1/sandboxes?all=true").json()["sandboxes"].size(), 0U);
}

TEST_P(Serve, BackgroundCommandIsHeardFromAnyOffset) {
  serve();
  const std::string box = create();
  const std::string command =
      start(box, {{"argv", {"bash", "-c", "echo one; read x; echo got $x; echo bad >&2; exit 7"}},
                  {"stdin", true}});
  ApiConnection events(daemon_->socket());
  events.send(request_text({.path = command + "/events"}));
  EXPECT_THAT(events.read_until("\"data\":\"one\\n\"", 10s), HasSubstr("event: stdout"));
  EXPECT_EQ(get(command).json()["state"], "running");
  EXPECT_EQ(get(command + "/output?offset=1").body, "ne\n");
  EXPECT_EQ(ask(daemon_->socket(), {.method = "POST",
                                    .path = command + "/stdin",
                                    .body = "two\n",
                                    .type = "application/octet-stream"})
                .status,
            204);
  const std::string heard = events.read_until("event: exit", 10s);
  EXPECT_THAT(heard, HasSubstr("\"data\":\"got two\\n\""));
  const json ended = get(command).json();
  EXPECT_EQ(ended["state"], "ended");
  EXPECT_EQ(ended["result"]["exit_code"], 7);
  EXPECT_EQ(get(command + "/output?stream=stderr").body, "bad\n");
  const ApiAnswer rest = get(command + "/output?offset=4");
  EXPECT_EQ(rest.body, "got two\n");
  EXPECT_EQ(rest.headers.at("carrel-next-offset"), "12");
  // And as events, after its end, from the middle.
  const ApiAnswer again = get(command + "/events?stdout=4");
  EXPECT_THAT(again.body, HasSubstr("\"offset\":4"));
  EXPECT_THAT(again.body, testing::Not(HasSubstr("\"data\":\"one")));
}

// R191
TEST_P(Serve, BackgroundCommandOfTheShellIsFoundAgain) {
  serve();
  const std::string box = create();
  shell(box, "A=7");
  const std::string command = start(box, {{"command", "echo $A; sleep 1; (exit 5)"}});
  ASSERT_TRUE(eventually(10s, [&] { return get(command).json().value("state", "") == "ended"; }));
  EXPECT_EQ(get(command).json()["result"]["exit_code"], 5) << get(command).body;
  // It has its turn behind the one before.
  start(box, {{"command", "sleep 1; B=8"}});
  EXPECT_EQ(shell(box, "echo $B")["stdout"], "8\n");
}

TEST_P(Serve, BackgroundCommandTakesSignalsAndEnds) {
  serve();
  const std::string box = create();
  const std::string trapped =
      start(box, {{"argv", {"bash", "-c", "trap 'exit 9' TERM; echo up; sleep 30 & wait"}}});
  ApiConnection events(daemon_->socket());
  events.send(request_text({.path = trapped + "/events"}));
  ASSERT_THAT(events.read_until("up", 10s), HasSubstr("up"));
  EXPECT_EQ(post(trapped + "/signal", {{"signal", "TERM"}}).status, 204);
  EXPECT_THAT(events.read_until("event: exit", 10s), HasSubstr("\"exit_code\":9"));
  const std::string endless = start(box, {{"argv", {"sleep", "1000"}}});
  EXPECT_EQ(remove(endless).status, 204);
  EXPECT_EQ(get(endless).json()["state"], "ended");
  EXPECT_EQ(post(endless + "/signal", {{"signal", "TERM"}}).status, 409);
  EXPECT_EQ(get(box + "/commands/999").status, 404);
  EXPECT_EQ(get(box + "/commands").json()["commands"].size(), 2U);
}

// R67
TEST_P(Serve, ClientThatLeavesEndsTheCommandItWaitedFor) {
  serve();
  const std::string box = create();
  {
    ApiConnection impatient(daemon_->socket());
    impatient.send(request_text(
        {.method = "POST", .path = box + "/exec", .body = R"({"argv":["sleep","100"]})"}));
    ASSERT_TRUE(
        eventually(5s, [&] { return get(box + "/commands").json()["commands"].size() == 1; }));
  }
  EXPECT_TRUE(eventually(
      5s, [&] { return get(box + "/commands").json()["commands"][0]["state"] == "ended"; }));
}

TEST_P(Serve, FilesGoInAndOut) {
  serve();
  const std::string box = create();
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) {
    bytes += static_cast<char>(i * 7);
  }
  const ApiAnswer put = ask(daemon_->socket(), {.method = "PUT",
                                                .path = box + "/files?path=a/b",
                                                .body = bytes,
                                                .type = "application/x-any"});
  EXPECT_EQ(put.status, 200) << put.body;
  EXPECT_TRUE(get(box + "/files?path=a/b").body == bytes);
  EXPECT_EQ(get(box + "/files?path=a/b&offset=7&count=9").body, bytes.substr(7, 9));
  EXPECT_EQ(get(box + "/files/stat?path=a/b").json()["size"], bytes.size());
  EXPECT_EQ(post(box + "/files/move", {{"path", "a"}, {"to", "c"}}).status, 200);
  EXPECT_EQ(get(box + "/files/list?path=.&recursive=true").json()["files"].size(), 2U);
  EXPECT_EQ(get(box + "/files?path=a/b").status, 404);
  EXPECT_EQ(get(box + "/files?path=../../etc/passwd").status, 403);
  const std::string tar = get(box + "/archive?path=c").body;
  EXPECT_EQ(ask(daemon_->socket(), {.method = "PUT",
                                    .path = box + "/archive?path=d",
                                    .body = tar,
                                    .type = "application/x-tar"})
                .status,
            200);
  EXPECT_TRUE(get(box + "/files?path=d/b").body == bytes);
  EXPECT_EQ(post(box + "/files/remove", {{"path", "c"}, {"recursive", true}}).status, 200);
  EXPECT_EQ(get(box + "/files/stat?path=c").status, 404);
}

TEST_P(Serve, WatchedDirectoryTellsWhatChangesInIt) {
  serve();
  const std::string box = create();
  shell(box, "mkdir -p d/below");
  const std::string watch = box + "/files/watch?path=d";
  ApiConnection flat(daemon_->socket());
  flat.send(request_text({.path = watch}));
  EXPECT_THAT(flat.read_until("event: watching", 10s), HasSubstr("text/event-stream"));
  ApiConnection deep(daemon_->socket());
  deep.send(request_text({.path = watch + "&recursive=true"}));
  EXPECT_THAT(deep.read_until("event: watching", 10s), HasSubstr("200"));
  shell(box, "cd d; echo x > below/unseen; mv below/unseen b; rm b");
  const std::string heard = deep.read_until("\"event\":\"remove\"", 10s);
  EXPECT_THAT(heard, HasSubstr(R"({"event":"create","directory":false,"path":"below/unseen"})"));
  EXPECT_THAT(heard,
              HasSubstr(R"("event":"rename","directory":false,"path":"below/unseen","to":"b"})"));
  EXPECT_THAT(flat.read_until("\"event\":\"remove\"", 10s), Not(HasSubstr("unseen")));
  // What there is nothing of to watch is an error before anything else, and so is a path upward.
  EXPECT_EQ(get(box + "/files/watch?path=none").status, 404);
  EXPECT_EQ(get(box + "/files/watch?path=../etc").status, 403);
  EXPECT_EQ(get(watch + "&recursive=maybe").status, 400);
  // The end of the sandbox is told.
  EXPECT_EQ(remove(box).status, 204);
  EXPECT_THAT(deep.read_until("event: error", 10s), HasSubstr("event: error"));
}

TEST_P(Serve, FileHasAnEtagAndAnUploadGoesOnWhereItBrokeOff) {
  serve();
  const std::string box = create();
  const auto put = [&](const std::string& query, const std::string& body,
                       std::vector<std::string> headers = {}) {
    return ask(daemon_->socket(), {.method = "PUT",
                                   .path = box + "/files?path=f" + query,
                                   .body = body,
                                   .headers = std::move(headers),
                                   .type = "application/x-any"});
  };
  EXPECT_EQ(put("&exists=append&offset=0", "one ").status, 200);
  EXPECT_EQ(put("&exists=append&offset=4", "two").status, 200);
  const ApiAnswer again = put("&exists=append&offset=4", "two");
  EXPECT_EQ(again.status, 409);
  EXPECT_THAT(again.body, HasSubstr("7 bytes"));
  const ApiAnswer read = get(box + "/files?path=f");
  EXPECT_EQ(read.body, "one two");
  const std::string etag = read.headers.at("etag");
  EXPECT_EQ(
      ask(daemon_->socket(), {.path = box + "/files?path=f", .headers = {"if-none-match: " + etag}})
          .status,
      304);
  EXPECT_EQ(put("", "three", {"if-match: " + etag}).status, 200);
  EXPECT_EQ(put("", "four", {"if-match: " + etag}).status, 412);
  EXPECT_EQ(put("", "five", {"if-none-match: *"}).status, 412);
  EXPECT_EQ(get(box + "/files?path=f").body, "three");
}

TEST_P(Serve, PartsOfAFileAreReadByRange) {
  serve();
  const std::string box = create();
  shell(box, "printf 0123456789 > f; : > empty; mkdir d");
  const auto read = [&](const std::string& file, std::vector<std::string> headers) {
    return ask(daemon_->socket(),
               {.path = box + "/files?path=" + file, .headers = std::move(headers)});
  };
  const ApiAnswer whole = read("f", {});
  EXPECT_EQ(whole.headers.at("accept-ranges"), "bytes");
  const ApiAnswer part = read("f", {"range: bytes=2-4"});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, "234");
  EXPECT_EQ(part.headers.at("content-range"), "bytes 2-4/10");
  EXPECT_EQ(read("f", {"range: bytes=-3"}).body, "789");
  EXPECT_EQ(read("f", {"range: bytes=8-"}).body, "89");
  for (const char* file : {"f", "empty"}) {
    const ApiAnswer behind = read(file, {"range: bytes=10-"});
    EXPECT_EQ(behind.status, 416);
    EXPECT_THAT(behind.headers.at("content-range"), testing::StartsWith("bytes */"));
  }
  // Several parts are the whole, as a server may do; so is a part of a file that has changed.
  EXPECT_EQ(read("f", {"range: bytes=0-1,4-5"}).status, 200);
  EXPECT_EQ(read("f", {"range: bytes=0-1", "if-range: \"other\""}).body, "0123456789");
  EXPECT_EQ(read("f", {"range: bytes=0-1", "if-range: " + whole.headers.at("etag")}).body, "01");
  EXPECT_EQ(read("f&offset=5", {"range: bytes=0-1"}).body, "56789");
  EXPECT_EQ(read("d", {"range: bytes=0-1"}).status, read("d", {}).status);
}

TEST_P(Serve, ForkIsAnotherSandboxWithItsOwnCopyAndUsageIsCounted) {
  serve();
  const std::string box = create({{"workspace", "origin"}});
  shell(box, "echo one > a");
  const ApiAnswer forked = post(box + "/forks", {{"name", "copy"}});
  ASSERT_EQ(forked.status, 201) << forked.body;
  EXPECT_EQ(forked.json()["name"], "copy");
  const std::string copy = "/v1/sandboxes/" + forked.json()["id"].get<std::string>();
  EXPECT_EQ(shell(copy, "cat a; echo two > a")["stdout"], "one\n");
  EXPECT_EQ(shell(box, "cat a")["stdout"], "one\n");
  const json usage = get(copy + "/usage").json();
  EXPECT_TRUE(usage["pids"].is_number()) << usage.dump();
  EXPECT_GT(usage["memory_bytes"].get<std::uint64_t>(), 0U);
}

TEST_P(Serve, TraceOfTheClientIsInTheLog) {
  serve();
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  EXPECT_EQ(
      ask(daemon_->socket(),
          {.path = "/v1/health", .headers = {"traceparent: 00-" + trace + "-00f067aa0ba902b7-01"}})
          .status,
      200);
  EXPECT_TRUE(eventually(
      5s, [&] { return daemon_->log().find("\"trace\":\"" + trace + "\"") != std::string::npos; }));
}

TEST_P(Serve, WorkspaceIsKeptComparedAndRestored) {
  serve();
  const std::string box = create({{"workspace", "notes"}});
  shell(box, "echo one > a");
  const ApiAnswer taken = post(box + "/snapshots", {{"name", "before"}});
  EXPECT_EQ(taken.status, 201) << taken.body;
  shell(box, "echo two > a; echo new > b");
  const ApiAnswer diff = get(box + "/diff?from=before");
  EXPECT_EQ(diff.status, 200) << diff.body;
  EXPECT_THAT(diff.body, HasSubstr("two"));
  const ApiAnswer back = post(box + "/restore", {{"snapshot", "before"}});
  EXPECT_EQ(back.status, 200) << back.body;
  EXPECT_EQ(shell(box, "cat a; ls")["stdout"], "one\na\n");
  EXPECT_EQ(post(box + "/restore", {{"snapshot", "never"}}).status, 404);
  EXPECT_EQ(post(box + "/restore", {{"snapshot", "--help"}}).status, 400);
}

TEST_P(Serve, LeaseEndsTheSandboxWithoutAnybody) {
  serve();
  const std::string box = create({{"lease", 60}});
  EXPECT_TRUE(get(box).json()["lease_ends_ms"].is_number());
  const ApiAnswer shorter =
      ask(daemon_->socket(), {.method = "PUT", .path = box + "/lease", .body = R"({"seconds":1})"});
  EXPECT_EQ(shorter.status, 200) << shorter.body;
  EXPECT_TRUE(eventually(10s, [&] { return get(box).json()["state"] == "ended"; }));
  EXPECT_THAT(get(box).json()["reason"].get<std::string>(), HasSubstr("lease"));
}

// R179, R180, J18
TEST_P(Serve, MaximumHoldsUnderConcurrentCreation) {
  serve({"--max-sandboxes", "3"});
  std::atomic<int> made = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const ApiAnswer answer = post("/v1/sandboxes", json::object());
      made += answer.status == 201 ? 1 : 0;
      if (answer.status == 429) {
        EXPECT_THAT(answer.body, HasSubstr("Maximum number of sandboxes (3) reached"));
        ++refused;
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(made, 3);
  EXPECT_EQ(refused, 9);
  const json all = get("/v1/sandboxes").json()["sandboxes"];
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(remove("/v1/sandboxes/" + all[0]["id"].get<std::string>()).status, 204);
  EXPECT_EQ(post("/v1/sandboxes", json::object()).status, 201);
}

TEST_P(Serve, FirstCommandComesWithTheSandbox) {
  serve();
  const json program = {{"run",
                         {{"argv", {"sh", "-c", "cat; echo $A >&2; exit 3"}},
                          {"stdin", "in"},
                          {"env", {{"A", "b"}}},
                          {"workdir", "/tmp"}}}};
  const ApiAnswer made = post("/v1/sandboxes", program);
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.json()["state"], "running");
  const json result = made.json()["result"];
  EXPECT_EQ(result["exit_code"], 3) << result.dump();
  EXPECT_EQ(result["stdout"], "in");
  EXPECT_EQ(result["stderr"], "b\n");
  // The sandbox stays, with what the command left.
  const ApiAnswer other =
      post("/v1/sandboxes", {{"run", {{"command", "cd /tmp; X=kept"}}}, {"env", {{"B", "c"}}}});
  ASSERT_EQ(other.status, 201) << other.body;
  const std::string box = "/v1/sandboxes/" + other.json()["id"].get<std::string>();
  EXPECT_EQ(shell(box, "echo $PWD $X $B")["stdout"], "/tmp kept c\n");
  EXPECT_FALSE(get(box).json().contains("result"));
  // One that takes too long ends as any command does.
  const ApiAnswer slow =
      post("/v1/sandboxes", {{"run", {{"argv", {"sleep", "60"}}, {"timeout", 0.2}}}});
  EXPECT_EQ(slow.status, 201) << slow.body;
  EXPECT_EQ(slow.json()["result"]["timed_out"], true) << slow.body;
}

TEST_P(Serve, FirstCommandThatIsWrongLeavesNoSandbox) {
  serve();
  for (const json& run :
       {json("true"), json::object(), json{{"argv", json::array()}},
        json{{"argv", {"true"}}, {"command", "true"}}, json{{"argv", {"true"}}, {"nothing", 1}},
        json{{"argv", {"true"}}, {"workdir", "/nowhere"}},
        json{{"argv", {std::string("a\0b", 3)}}}}) {
    const ApiAnswer answer = post("/v1/sandboxes", {{"run", run}});
    EXPECT_EQ(answer.status, 400) << run.dump() << answer.body;
  }
  EXPECT_EQ(get("/v1/sandboxes").json()["sandboxes"].size(), 0U);
  // A program that is not there is no error: its sandbox is as good as any.
  const ApiAnswer unknown = post("/v1/sandboxes", {{"run", {{"argv", {"no-such-program"}}}}});
  EXPECT_EQ(unknown.status, 201) << unknown.body;
  EXPECT_EQ(unknown.json()["result"]["exit_code"], 127) << unknown.body;
}

TEST_P(Serve, FirstCommandIsNotRunAgainForTheSameKey) {
  serve();
  const json body = {{"run", {{"command", "echo once >> /tmp/log; wc -l < /tmp/log"}}}};
  const ApiAnswer first = post("/v1/sandboxes", body, {"idempotency-key: one"});
  const ApiAnswer again = post("/v1/sandboxes", body, {"idempotency-key: one"});
  ASSERT_EQ(first.status, 201) << first.body;
  ASSERT_EQ(again.status, 201) << again.body;
  EXPECT_EQ(first.json()["id"], again.json()["id"]);
  EXPECT_EQ(first.json()["result"]["stdout"], "1\n");
  EXPECT_TRUE(again.json()["result"].is_null()) << again.body;
  const std::string box = "/v1/sandboxes/" + first.json()["id"].get<std::string>();
  EXPECT_EQ(shell(box, "cat /tmp/log")["stdout"], "once\n");
}

// J19
TEST_P(Serve, IdempotencyKeyGivesTheSameSandboxInTheNextDaemonToo) {
  serve();
  const std::vector<std::string> key = {"idempotency-key: k1"};
  const json first = post("/v1/sandboxes", {{"pids", 40}}, key).json();
  EXPECT_EQ(post("/v1/sandboxes", {{"pids", 40}}, key).json()["id"], first["id"]);
  EXPECT_EQ(post("/v1/sandboxes", {{"pids", 41}}, key).status, 409);
  daemon_->kill();
  serve();
  EXPECT_EQ(post("/v1/sandboxes", {{"pids", 40}}, key).json()["id"], first["id"]);
  EXPECT_EQ(get("/v1/sandboxes").json()["sandboxes"].size(), 1U);
}

// R192
TEST_P(Serve, NextDaemonHasTheCommandsOfTheOneThatWasKilled) {
  serve();
  const std::string box = create();
  shell(box, "cd /tmp");
  const std::string command =
      start(box, {{"argv", {"bash", "-c", "echo before; sleep 2; echo after; exit 5"}}});
  const std::string second = create();
  shell(second, "x=kept");
  const std::string ended = create();
  daemon_->kill();
  kill_guest(ended);
  serve();
  // Those that live are its own now, and the one that died meanwhile is known to have, when the
  // kernel has taken it apart.
  EXPECT_TRUE(eventually(std::chrono::seconds(5),
                         [&] { return get("/v1/sandboxes").json()["sandboxes"].size() == 2; }));
  EXPECT_EQ(shell(second, "echo $x")["stdout"], "kept\n");
  EXPECT_EQ(get(ended).json()["state"], "ended");
  EXPECT_THAT(get(ended).json()["reason"].get<std::string>(), HasSubstr("killed by signal 9"));
  EXPECT_EQ(shell(box, "pwd")["stdout"], "/tmp\n");
  const ApiAnswer heard = get(command + "/events");
  EXPECT_THAT(heard.body, HasSubstr("before"));
  EXPECT_THAT(heard.body, HasSubstr("after"));
  EXPECT_THAT(heard.body, HasSubstr("\"exit_code\":5"));
}

TEST_P(Serve, StopIsOrderlyAndThereIsOneDaemon) {
  serve();
  const std::string box = create();
  const Run second = carrel({"serve"});
  EXPECT_NE(second.status, 0);
  EXPECT_THAT(second.err, HasSubstr("running already"));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - before, patient(8s));
  daemon_.reset();
  EXPECT_THAT(carrel({"ls"}).out, HasSubstr(box.substr(box.rfind('/') + 1)));
}

// From the moment at which somebody can see that it listens.
TEST_P(Serve, StopIsOrderlyHoweverEarlyItIs) {
  for (int i = 0; i < 10; ++i) {
    Process daemon(launch({"serve"}));
    const std::string socket = place().home(GetParam()) + "/run/api.sock";
    const Deadline deadline(10s);
    while (::access(socket.c_str(), F_OK) != 0 && !deadline.is_over()) {
      // At once, so without a pause.
    }
    daemon.send(SIGTERM);
    const Run run = daemon.wait(20s);
    EXPECT_EQ(run.status, 0) << run.signal << run.err;
    EXPECT_NE(::access(socket.c_str(), F_OK), 0);
  }
}

TEST_P(Serve, LeavesWhenNobodyCame) {
  serve({"--idle-exit", "1"});
  EXPECT_EQ(daemon_->wait(10s), 0);
  daemon_.reset();
}

TEST_P(Serve, EventsTellWhatHappens) {
  serve();
  ApiConnection events(daemon_->socket());
  events.send(request_text({.path = "/v1/events"}));
  events.read_until("\r\n\r\n", 5s);
  const std::string box = create();
  shell(box, "true");
  remove(box);
  const std::string heard = events.read_until("event: stop", 10s);
  EXPECT_THAT(heard, HasSubstr("event: start"));
  EXPECT_THAT(heard, HasSubstr("event: command"));
  EXPECT_THAT(heard, HasSubstr("event: stop"));
}

// Says how it is called, refuses its first event for the time being, and checks every signature.
constexpr const char* kReceiver = R"(
import hashlib, hmac, http.server, json, sys
seen = 0
class Hook(http.server.BaseHTTPRequestHandler):
  def do_POST(self):
    global seen
    body = self.rfile.read(int(self.headers['content-length']))
    t, v = (p.split('=')[1] for p in self.headers['carrel-signature'].split(','))
    want = hmac.new(b'0123456789abcdef', t.encode() + b'.' + body, hashlib.sha256).hexdigest()
    seen += 1
    self.send_response(503 if seen == 1 else 200)
    self.end_headers()
    print('good' if hmac.compare_digest(want, v) else 'forged', json.loads(body)['event'], flush=True)
  def log_message(self, *args): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Hook)
print('port', server.server_port, flush=True)
server.serve_forever()
)";

TEST_P(Serve, WebhookIsToldEveryEventSignedAndUntilItTakesIt) {
  Launch program;
  program.program = "/usr/bin/python3";
  program.arguments = {"-c", kReceiver};
  program.directory = "/";
  Process receiver(program);
  ASSERT_TRUE(receiver.wait_for_output("\n", 10s));
  const std::string port = receiver.out().substr(5, receiver.out().find('\n') - 5);
  const std::vector<std::string> options = {"--webhook", "http://127.0.0.1:" + port + "/hook",
                                            "--webhook-secret-file",
                                            file("secret", "0123456789abcdef\n")};
  serve(options);
  const std::string box = create();
  EXPECT_TRUE(receiver.wait_for_output("good start\ngood start\n", 10s)) << receiver.out();
  daemon_->kill();
  EXPECT_EQ(carrel({"sh", box.substr(box.rfind('/') + 1), "true"}).status, 0);
  serve(options);
  remove(box);
  EXPECT_TRUE(receiver.wait_for_output("good stop\n", 10s)) << receiver.out();
  // What happened while there was no daemon was told, too.
  EXPECT_THAT(receiver.out(), HasSubstr("good result\n"));
  EXPECT_THAT(receiver.out(), testing::Not(HasSubstr("forged")));
  EXPECT_THAT(get("/metrics").body, HasSubstr("carrel_webhook_events_total "));
}

// A client's frame, with a mask of zeros.
std::string frame(unsigned char opcode, const std::string& data) {
  return std::string{
             static_cast<char>(0x80 | opcode), static_cast<char>(0x80 | data.size()), 0, 0, 0, 0} +
         data;
}

std::string websocket_request(const std::string& path) {
  return request_text(
      {.path = path,
       .headers = {"connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13",
                   "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="}});
}

TEST_P(Serve, TerminalIsSpokenToOverAWebSocketAndFoundAgain) {
  serve();
  const std::string box = create();
  const std::string command = start(box, {{"argv", {"bash", "--norc", "-i"}},
                                          {"terminal", true},
                                          {"stdin", true},
                                          {"rows", 30},
                                          {"columns", 100}});
  EXPECT_EQ(get(command + "/terminal").status, 400);
  {
    ApiConnection terminal(daemon_->socket());
    terminal.send(websocket_request(command + "/terminal"));
    EXPECT_THAT(terminal.read_until("\r\n\r\n", 5s),
                HasSubstr("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    terminal.send(frame(2, "stty size\n"));
    EXPECT_THAT(terminal.read_until("30 100", 10s), HasSubstr("30 100"));
    terminal.send(frame(1, R"({"resize":{"rows":50,"columns":120}})"));
    terminal.send(frame(2, "stty size; x=kept\n"));
    EXPECT_THAT(terminal.read_until("50 120", 10s), HasSubstr("50 120"));
  }
  ApiConnection again(daemon_->socket());
  again.send(websocket_request(command + "/terminal"));
  EXPECT_THAT(again.read_until("50 120", 10s), HasSubstr("30 100"));
  again.send(frame(2, "echo ${x}_it; exit 4\n"));
  const std::string heard = again.read_until("\"exit_code\":4", 10s);
  EXPECT_THAT(heard, HasSubstr("kept_it"));
  EXPECT_THAT(heard, HasSubstr("{\"event\":\"exit\""));
}

// R192, B-44: acknowledged is stored, and nothing is left that nobody knows of.
TEST_P(Serve, TwentyKillsUnderLoadLoseNothing) {
  std::set<std::string> acknowledged;
  std::mutex mutex;
  const unsigned long kills = number_from("CARREL_DAEMON_KILLS", 20);
  for (unsigned long round = 0; round < kills; ++round) {
    serve();
    std::atomic<bool> over = false;
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&] {
        while (!over) {
          const ApiAnswer made = post("/v1/sandboxes", {{"memory", "64m"}});
          if (made.status != 201) {
            continue;
          }
          const std::string box = "/v1/sandboxes/" + made.json()["id"].get<std::string>();
          const ApiAnswer wrote = post(box + "/shell", {{"command", "echo kept > kept"}});
          if (wrote.status == 200 && wrote.json()["exit_code"] == 0) {
            const std::lock_guard lock(mutex);
            acknowledged.insert(box);
          } else if (wrote.status != 0) {
            ADD_FAILURE() << wrote.body;
          }
          bool many = false;
          {
            const std::lock_guard lock(mutex);
            many = acknowledged.size() > 6;
          }
          if (many) {
            const std::lock_guard lock(mutex);
            const std::string old = *acknowledged.begin();
            acknowledged.erase(acknowledged.begin());
            (void)remove(old + "?grace_ms=0");
          }
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + (round * 37) % 400));
    ::kill(daemon_->pid(), SIGKILL);
    over = true;
    for (std::thread& client : clients) {
      client.join();
    }
    daemon_->kill();
  }
  serve();
  for (const std::string& box : acknowledged) {
    EXPECT_EQ(shell(box, "cat kept")["stdout"], "kept\n") << box;
  }
  // Everybody whom the database knows is there, and everybody who is there is known. One that a
  // daemon was making when it was killed may still be taken away: nobody was told of it.
  const json live = get("/v1/sandboxes?limit=1000").json()["sandboxes"];
  for (const json& box : live) {
    const std::string path = "/v1/sandboxes/" + box["id"].get<std::string>();
    const ApiAnswer answer = post(path + "/shell", {{"command", "true"}});
    if (answer.status == 404 && !acknowledged.contains(path)) {
      EXPECT_TRUE(eventually(10s, [&] {
        return get("/v1/sandboxes?limit=1000").body.find(box["id"].get<std::string>()) ==
               std::string::npos;
      })) << box;
      continue;
    }
    EXPECT_EQ(answer.json().value("exit_code", -1), 0) << answer.body;
    EXPECT_EQ(remove(path + "?grace_ms=0").status, 204);
  }
}

}  // namespace
}  // namespace carrel::test
