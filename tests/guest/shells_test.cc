// Commands that break their shell, and what the next one finds.
#include <string>

#include "connection.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using protocol::EndKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Shells : public CarrelTest {};
CARREL_AS_BOTH(Shells);

bool was_restarted(const Heard& heard) {
  return (heard.end.flags & protocol::kExitShellRestarted) != 0;
}

// A shell that can still tell its status but not open what the next command needs.
TEST_P(Shells, CommandThatItsShellCannotOpenRunsOnceInAFreshOne) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  Heard first = client.run(
      "ulimit -n 300; while exec {x}</dev/null; do :; done 2>/dev/null; exec {x}</dev/null; "
      "exec 3</dev/null 4<&3 5<&3 6<&3 7<&3 8<&3 9<&3; rm -f /workspace/n; (exit 5)");
  EXPECT_EQ(first.end.code, 5U);
  Heard second = client.run("echo x >> /workspace/n; echo ran");
  EXPECT_EQ(second.out, "ran\n");
  EXPECT_EQ(second.end.code, 0U);
  EXPECT_TRUE(was_restarted(second));
  EXPECT_EQ(client.run("cat /workspace/n").out, "x\n");
}

TEST_P(Shells, ClosedControlDescriptorsCostOnlyTheShell) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  for (const char* text :
       {"exec 196<&-",
        "exec 194>&- 195>&-",
        "exec 196</dev/zero",
        "exec 197>&-",
        "exec 198>&-",
        "exec 199>&-",
        "exec 197</dev/zero",
        "exec 198</dev/zero",
        "exec 199</",
        "exec 196<&- 197<&- 198<&- 199<&- 10<&- 11<&- 12<&-",
        "for f in /proc/$BASHPID/fd/*; do f=${f##*/}; exec {f}<&-; done 2>/dev/null",
        "enable -n eval",
        "enable -n mapfile",
        "enable -n echo",
        "enable -n builtin",
        "builtin() { :; }",
        "builtin() { return 3; }",
        "builtin() { [[ $1 == mapfile ]] || command builtin \"$@\"; }",
        "mapfile() { :; }",
        "readonly __carrel",
        "readonly __carrel_last",
        "readonly __carrel_nonce",
        "unset __carrel",
        "__carrel=()",
        "set -r",
        "set -n"}) {
    client.run("rm -f /workspace/ran");
    Heard broken = client.run("echo x >> /workspace/ran; " + std::string(text) + "; (exit 7)");
    EXPECT_TRUE(broken.ended) << text;
    EXPECT_EQ(broken.end.kind, EndKind::kExited) << text;
    Heard next = client.run("rm -f /workspace/n; echo x >> /workspace/n; cat /workspace/n");
    EXPECT_EQ(next.out, "x\n") << text;
    EXPECT_LT(next.took, patient(seconds(5))) << text;
    EXPECT_EQ(client.run("cat /workspace/ran").out, "x\n") << text;
    EXPECT_EQ(client.run("(exit 9)").end.code, 9U) << text;
  }
}

TEST_P(Shells, GarbageOnEveryDescriptorIsNoAnswer) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  Heard heard = client.run(
      "for f in /proc/$BASHPID/fd/*; do for i in 1 2 3; do "
      "printf ' 0123456789abcdef 0 0\\n x\\n\\0 ' > \"$f\"; done; done 2>/dev/null; "
      "head -c 100000 /dev/urandom >&198; (exit 6)");
  EXPECT_EQ(heard.end.code, 6U);
  EXPECT_EQ(client.run("echo ok").out, "ok\n");
}

TEST_P(Shells, EveryDescriptorCanBeWrittenAndReadAway) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  Heard heard = client.run("for i in {3..1023}; do echo junk >&$i; done 2>/dev/null; (exit 6)");
  EXPECT_EQ(heard.end.code, 6U);
  EXPECT_LT(heard.took, patient(seconds(5)));
  heard = client.run("for i in 197 199; do while read -r -u $i; do :; done; done; (exit 5)");
  EXPECT_EQ(heard.end.code, 5U);
  EXPECT_LT(heard.took, patient(seconds(5)));
  EXPECT_EQ(client.run("echo ok").out, "ok\n");
}

TEST_P(Shells, PrivateFilesCannotBeTakenAway) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run(
      "rm -f /proc/$$/fd/199/*; mv /proc/$$/fd/199/text /proc/$$/fd/199/x; "
      "ln -s /etc/passwd /proc/$$/fd/199/y; : > /proc/$$/fd/199/text");
  EXPECT_EQ(client.run("echo ok").out, "ok\n");
  EXPECT_EQ(client.run("ls /proc/$$/fd/199/").out.find('y'), std::string::npos);
}

TEST_P(Shells, ShellThatAJobStoppedGoesOn) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run("{ sleep 0.3; kill -STOP $$; } >/dev/null 2>&1 &");
  client.wait(client.start({.text = {}, .arguments = {"sleep", "0.6"}}));
  Heard next = client.run("echo ok");
  EXPECT_EQ(next.out, "ok\n");
  EXPECT_FALSE(was_restarted(next));
}

TEST_P(Shells, TimeoutHoldsWhileTheShellStarts) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run("true");
  // Whatever becomes a shell is stopped before it can be one.
  std::uint32_t stopper = client.sh(
      "while :; do for p in /proc/[0-9]*; do read -r c < $p/cmdline; "
      "[[ $c == bash*__carrel* && ${p##*/} != $$ ]] && kill -STOP ${p##*/}; done; done "
      "2>/dev/null");
  Heard second = client.wait(
      client.start({.text = "echo x", .arguments = {}, .timeout_ms = 700, .session = "second"}));
  EXPECT_TRUE(second.ended || second.refused);
  EXPECT_LT(second.took, patient(seconds(5)));
  client.send(stopper, protocol::FrameType::kKill);
  EXPECT_EQ(client.wait(stopper).end.kind, EndKind::kKilled);
  EXPECT_EQ(client.wait(client.start({.text = "echo x", .arguments = {}, .session = "third"})).out,
            "x\n");
}

TEST_P(Shells, JobThatFloodsDoesNotHoldUpTheEnd) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  Heard heard = client.run("yes & echo started >&2");
  EXPECT_EQ(heard.err, "started\n");
  EXPECT_LT(heard.took, patient(seconds(5)));
  Heard next = client.run("echo clean; kill %1");
  EXPECT_EQ(next.out, "clean\n");
}

TEST_P(Shells, LateOutputStaysWithItsCommand) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run("(sleep 0.4; echo late) & exec 7>&1");
  EXPECT_EQ(client.run("echo now; echo kept >&7; sleep 0.8").out, "now\n");
  auto known = client.list();
  ASSERT_GE(known.size(), 2U);
  Heard first = client.wait(client.follow(known.begin()->first, 0, 0));
  EXPECT_NE(first.out.find("late\n"), std::string::npos);
  EXPECT_NE(first.out.find("kept\n"), std::string::npos);
}

// Whatever a command does to its streams is over with it, and costs nothing but that.
TEST_P(Shells, StreamsAreWholeAgainForTheNextCommand) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  for (const char* text :
       {"exec >/workspace/f; echo hidden", "exec 2>&-", "exec >&-", "exec <&-", "exec <&- >&- 2>&-",
        "exec </etc/passwd", "exec >/dev/full 2>&1", "exec 2>&1", "exec >&2", "exec 194>&-",
        "exec 195>/dev/null", "exec 194>/workspace/f 195>&194", "exec 194>&195", "exec 200>&-",
        "exec 0<&194", "exec 7>&1; exec 7>&-", "exec 7>&1 8>&2; exec 7>&- 8>&-"}) {
    EXPECT_EQ(client.run(std::string(text) + "; true").out, "") << text;
    for (int i = 0; i < 2; ++i) {
      Heard next = client.run("cat; echo out; echo err >&2");
      EXPECT_EQ(next.out, "out\n") << text;
      EXPECT_EQ(next.err, "err\n") << text;
      EXPECT_EQ(next.end.code, 0U) << text;
      EXPECT_FALSE(was_restarted(next)) << text;
    }
  }
}

// A job has its command's streams to itself for as long as it lives, and nobody else's after.
TEST_P(Shells, JobsOutputIsItsCommandsAlone) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  for (const char* job :
       {"(sleep 0.3; echo late; echo late >&2) &",
        "{ sleep 0.3; echo late; echo late >&2; } & disown;",
        "setsid bash -c 'sleep 0.3; echo late; echo late >&2' &",
        "(bash -c 'sleep 0.3; echo late; echo late >&2' &);", "(sleep 0.3; echo late >&2) >&2 &",
        "exec 7>&1 8>&2; (sleep 0.3; echo late >&7; echo late >&8) >/dev/null 2>&1 & exec 7>&- "
        "8>&-;"}) {
    EXPECT_EQ(client.run(std::string(job) + " echo $!").err, "") << job;
    const std::uint64_t id = client.list().rbegin()->first;
    for (int i = 0; i < 4; ++i) {
      Heard next = client.run("echo out; echo err >&2; sleep 0.15");
      EXPECT_EQ(next.out, "out\n") << job;
      EXPECT_EQ(next.err, "err\n") << job;
    }
    Heard first = client.wait(client.follow(id, 0, 0));
    EXPECT_NE((first.out + first.err).find("late\n"), std::string::npos) << job;
    EXPECT_NE(first.err.find("late\n"), std::string::npos) << job;
  }
}

// Longer than the guest remembers the command that started it.
TEST_P(Shells, JobMayOutliveTheMemoryOfItsCommand) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run("(sleep 1; echo late; echo late >&2) &");
  for (int i = 0; i < 100; ++i) {
    Heard next = client.run("echo out " + std::to_string(i) + (i < 90 ? "" : "; sleep 0.15"));
    EXPECT_EQ(next.out, "out " + std::to_string(i) + "\n");
    EXPECT_EQ(next.err, "");
  }
  EXPECT_EQ(client.run("wait; echo ok").out, "ok\n");
}

TEST_P(Shells, BuiltinsMayWriteMuch) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  for (std::size_t size : {1UL, 127UL, 129UL, 2047UL, 2049UL, 65'536UL, 65'537UL, 700'000UL}) {
    const std::string number = std::to_string(size);
    Heard heard = client.run("printf -v x '%*s' " + number +
                             " ''; echo -n \"$x\"; echo -n \"$x\" >&2; echo -n \"$x\"");
    EXPECT_EQ(heard.out.size(), 2 * size);
    EXPECT_EQ(heard.err.size(), size);
    EXPECT_EQ(client.run("echo ok").out, "ok\n");
  }
}

// Nothing that an earlier command said or left can be taken for the answer to a later one.
TEST_P(Shells, JobCannotAnswerForALaterCommand) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run(
      "(for i in {1..300}; do printf 'ready\\n 0 0\\n 0123456789abcdef 0 0\\n 2 0\\n' >&198; "
      "printf x >&194; read -r -t 0.01 <> <(:); done) 2>/dev/null &");
  for (int i = 0; i < 20; ++i) {
    Heard next = client.run("echo out; (exit 7)");
    EXPECT_EQ(next.end.code, 7U);
    EXPECT_EQ(next.out, "out\n");
  }
}

TEST_P(Shells, TextsOfAnySizeAndAnyBytesArriveWhole) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  for (std::size_t size : {0UL, 1UL, 900UL, 1024UL, 4096UL, 200'000UL, 2'000'000UL}) {
    Heard heard = client.run("x=" + std::string(size, 'y') + "; echo ${#x}");
    EXPECT_EQ(heard.out, std::to_string(size) + "\n");
  }
  std::string bytes;
  for (int c = 1; c < 256; ++c) {
    if (c != '\'') {
      bytes += static_cast<char>(c);
    }
  }
  EXPECT_EQ(client.run("printf %s '" + bytes + "'").out, bytes);
  EXPECT_EQ(client.run("").end.code, 0U);
}

TEST_P(Shells, FolderIsReportedAsTheKernelNamesIt) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  EXPECT_EQ(client.run("mkdir -p $'/tmp/a\\nb' && cd $'/tmp/a\\nb'").cwd, "/tmp/a\nb");
  EXPECT_EQ(client.run("mkdir '/tmp/x (deleted)' && cd '/tmp/x (deleted)'").cwd,
            "/tmp/x (deleted)");
  EXPECT_EQ(client.run("rmdir '/tmp/x (deleted)'").cwd, "/tmp/x (deleted) (deleted)");
  EXPECT_EQ(client.run("exit 4").cwd, "/workspace");
}

}  // namespace
}  // namespace carrel::test
