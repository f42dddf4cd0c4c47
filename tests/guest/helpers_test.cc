// The processes that start and mind commands belong to the workload: it can kill and stop them.
#include <string>

#include "connection.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using protocol::EndKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Helpers : public CarrelTest {};
CARREL_AS_BOTH(Helpers);

// Bash functions: the parent of a process, and the pids of those with that argument.
constexpr char kTools[] =
    "parent() { local s; read -r s < /proc/$1/stat; s=${s##*) }; set -- $s; echo $2; }; "
    "named() { local p c; for p in /proc/[0-9]*; do IFS= read -r -d '' c < $p/cmdline && "
    "[[ $c == \"$1\" ]] && echo ${p##*/}; done; } 2>/dev/null; ";

class Victim {
 public:
  Victim(As as, const Box& box) : client_(as, box) {
    client_.run(std::string(kTools) + ":");
    channel_ = client_.start({.text = {}, .arguments = {"sleep", "600"}});
    // Until it is there.
    EXPECT_EQ(client_.run("until p=$(named sleep); [[ $p ]]; do :; done; echo ok").out, "ok\n");
  }
  Connection& client() { return client_; }
  Heard& wait() { return client_.wait(channel_, seconds(10)); }
  // A command in the shell, with the tools and $p, the victim's pid.
  Heard sh(const std::string& text) { return client_.run("p=$(named sleep); " + text); }

 private:
  Connection client_;
  std::uint32_t channel_ = 0;
};

// The guest learns who the program is after that may have begun, and even spoken.
TEST_P(Helpers, ASignalThatComesBeforeTheProgramIsKnownReachesIt) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  const std::uint32_t channel = client.start({.text = {}, .arguments = {"sleep", "600"}});
  client.send(channel, protocol::FrameType::kSignal, std::string("\x0f\0\0\0", 4));
  const Heard& heard = client.wait(channel, seconds(10));
  EXPECT_EQ(heard.end.kind, EndKind::kSignaled);
  EXPECT_EQ(heard.end.signal, 15U);
}

TEST_P(Helpers, KilledMinderEndsItsCommand) {
  Box box(GetParam());
  Victim victim(GetParam(), box);
  victim.sh("kill -9 $(parent $p)");
  const Heard& heard = victim.wait();
  EXPECT_EQ(heard.end.kind, EndKind::kSignaled);
  EXPECT_EQ(heard.end.signal, 9U);
  EXPECT_EQ(victim.sh("echo [$p]").out, "[]\n") << "nothing of it is left";
}

TEST_P(Helpers, StoppedMinderGoesOn) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  for (const char* text : {"kill -STOP $PPID; echo x", "kill -STOP -1; echo x"}) {
    Heard heard = client.wait(client.start({.text = {}, .arguments = {"bash", "-c", text}}));
    EXPECT_EQ(heard.end.kind, EndKind::kExited) << text;
    EXPECT_EQ(heard.out, "x\n") << text;
    EXPECT_LT(heard.took, patient(seconds(5))) << text;
  }
}

TEST_P(Helpers, StoppedMinderWhoseSpawnerIsGoneGoesOn) {
  Box box(GetParam());
  Victim victim(GetParam(), box);
  victim.sh("m=$(parent $p); kill -9 $(parent $m); kill -STOP $m; kill -TERM $p");
  EXPECT_EQ(victim.wait().end.kind, EndKind::kSignaled);
  EXPECT_LT(victim.wait().took, patient(seconds(5)));
}

// Somebody who stops the helpers all the time holds up this sandbox, for as long as timeouts allow.
TEST_P(Helpers, HelpersThatAreStoppedAllTheTimeCannotHoldUpATimeout) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  std::uint32_t channel =
      client.start({.text = {},
                    .arguments = {"bash", "-c", "while :; do kill -STOP -1; done"},
                    .timeout_ms = 1000});
  EXPECT_EQ(client.wait(channel, seconds(10)).end.kind, EndKind::kTimedOut);
  EXPECT_EQ(client.wait(client.start({.text = {}, .arguments = {"echo", "x"}})).out, "x\n");
}

TEST_P(Helpers, KilledSpawnerIsReplaced) {
  Box box(GetParam());
  Victim victim(GetParam(), box);
  victim.sh("s=$(parent $(parent $p)); kill -9 $s; while kill -0 $s; do :; done 2>/dev/null");
  Connection& client = victim.client();
  EXPECT_EQ(client.wait(client.start({.text = {}, .arguments = {"echo", "again"}})).out, "again\n");
  EXPECT_NE(victim.sh("echo $p").out, "\n") << "what was running goes on";
  EXPECT_EQ(
      client.wait(client.start({.text = "echo other", .arguments = {}, .session = "other"})).out,
      "other\n");
}

TEST_P(Helpers, StoppedSpawnerGoesOn) {
  Box box(GetParam());
  Victim victim(GetParam(), box);
  victim.sh("kill -STOP $(parent $(parent $p))");
  Connection& client = victim.client();
  Heard heard =
      client.wait(client.start({.text = {}, .arguments = {"echo", "x"}, .timeout_ms = 5000}));
  EXPECT_EQ(heard.end.kind, EndKind::kExited);
  EXPECT_EQ(heard.out, "x\n");
}

TEST_P(Helpers, KilledMinderOfAShellCostsTheShellAfterItsCommand) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run(std::string(kTools) + ":");
  Heard heard = client.run("sleep 600 & kill -9 $(parent $$); sleep 0.3; echo on; (exit 3)");
  EXPECT_EQ(heard.out, "on\n");
  EXPECT_EQ(heard.end.kind, EndKind::kExited);
  EXPECT_EQ(heard.end.code, 3U);
  client.run(std::string(kTools) + ":");
  EXPECT_EQ(client.run("named sleep").out, "");
}

TEST_P(Helpers, ProcessLimitIsNamed) {
  Box box(GetParam(), {"--pids", "20"});
  Connection client(GetParam(), box);
  std::uint32_t many = client.start({.text = {},
                                     .arguments = {"python3", "-c",
                                                   "import os, time\n"
                                                   "try:\n"
                                                   "  while os.fork(): pass\n"
                                                   "except OSError: print('full', flush=True)\n"
                                                   "time.sleep(600)"}});
  EXPECT_TRUE(client.wait_for_output(many, "full"));
  Heard heard = client.wait(client.start({.text = {}, .arguments = {"true"}}));
  EXPECT_EQ(heard.end.kind, EndKind::kNotStarted);
  EXPECT_NE(heard.end.flags & protocol::kExitProcessLimit, 0);
}

}  // namespace
}  // namespace carrel::test
