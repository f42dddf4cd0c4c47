// Attacks through the files of a sandbox: by whoever names paths from outside, by archives, and by
// programs inside that wait for somebody to read or write. CARREL_RACES sets the rounds of races.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "attacks/attack_test.h"
#include "support/tar_entry.h"
#include "support/walls.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

unsigned long rounds() {
  const char* text = std::getenv("CARREL_RACES");
  return text == nullptr ? 150 : std::strtoul(text, nullptr, 10);
}

class FilesApiAttack : public AttackTest {
 protected:
  Run file(const std::string& id, const std::string& action, std::vector<std::string> words,
           const std::string& input = "") {
    words.insert(words.begin(), {"file", action, id, "--"});
    return attack(words, {.input = input, .timeout_seconds = 40});
  }
  [[nodiscard]] std::string host(const std::string& name) const {
    return place().work(GetParam()) + "/" + name;
  }
  // The path of a file of the host's whose contents are the secret, readable by everybody.
  std::string plant(const std::string& name) const {
    const std::string path = host(name);
    write_text(path, canaries().secret(), 0644);
    return path;
  }
};
CARREL_AS_BOTH(FilesApiAttack);

TEST_P(FilesApiAttack, B01_NoSpellingOfAPathLeavesTheSandbox) {
  const std::string id = create();
  const std::string planted = plant("CANARY_FILE");
  // The control: the file is there for whoever is outside.
  ASSERT_EQ(read_text(planted).value_or(""), canaries().secret());
  std::string climbing;
  for (int i = 0; i < 12; ++i) {
    climbing += "../";
  }
  for (const std::string& path :
       {climbing + planted.substr(1), "/.." + planted, std::string("..%2f..%2fetc%2fpasswd"),
        std::string("%2e%2e/etc/passwd"), std::string("..%252fetc"), std::string("..\\..\\etc"),
        "/proc/self/root" + planted, "/" + planted, "/workspace/./../.." + planted,
        std::string("\xc0\xae\xc0\xae/etc/passwd"), "/proc/1/root" + planted,
        "/proc/self/cwd/../.." + planted, planted}) {
    for (const char* action : {"read", "ls", "stat"}) {
      EXPECT_NE(file(id, action, {path}).status, 0) << action << " " << path;
    }
    EXPECT_NE(attack({"cp", id + ":" + path, host("stolen")}).status, 0) << path;
    file(id, "write", {path}, "evil");
    file(id, "rm", {path});
  }
  EXPECT_EQ(read_text(planted).value_or(""), canaries().secret());
}

TEST_P(FilesApiAttack, B02_LinksLeadNowhereOutside) {
  const std::string id = create();
  const std::string planted = plant("CANARY_FILE");
  sh(id, "ln -s '" + planted + "' l; ln -s '" + host("") + "' d");
  EXPECT_EQ(file(id, "read", {"l"}).status, 125);
  EXPECT_EQ(file(id, "ls", {"d"}).status, 125);
  EXPECT_EQ(file(id, "read", {"d/CANARY_FILE"}).status, 125);
  EXPECT_NE(file(id, "read", {"l/.."}).status, 0);
  EXPECT_EQ(file(id, "stat", {"l"}).status, 0);  // the link itself
  EXPECT_EQ(file(id, "delete", {"l"}).status, 0);
  EXPECT_EQ(sh(id, "ls").out, "d\n");
  EXPECT_TRUE(fs::exists(planted));
}

TEST_P(FilesApiAttack, B03_MagicLinksAreRefused) {
  const std::string id = create();
  // Those of a process that the worker may look into, too: it is one of the same user.
  std::string other = sh(id, "sleep 1000 > /dev/null & echo $!").out;
  other = "/proc/" + other.substr(0, other.find('\n'));
  sh(id,
     "ln -s /proc/self/root r; ln -s /proc/1/fd/3 f; ln -s /proc/self/exe e; "
     "ln -s /proc/self/fd/0 z; ln -s /proc/self/cwd c; ln -s " +
         other + "/root o; echo text > here");
  for (const std::string& path : std::vector<std::string>{
           "r", "f", "e", "z", "c", "r/etc/passwd", "/proc/self/exe",
           "/proc/self/root/etc/hostname", "/proc/self/fd/0", "o/etc/hostname",
           other + "/root/etc/hostname", other + "/cwd/here", other + "/exe"}) {
    EXPECT_EQ(file(id, "read", {path}).status, 125) << path;
    EXPECT_EQ(file(id, "write", {path}, "evil").status, 125) << path;
    EXPECT_EQ(attack({"cp", id + ":" + path, host("stolen")}).status, 125) << path;
  }
  // The control: where nobody refuses, they work.
  EXPECT_EQ(sh(id, "cat r/etc/hostname o/etc/hostname " + other + "/cwd/here").out,
            "sandbox\nsandbox\ntext\n");
  expect_usable(id, "magic links");
}

// A program swaps a directory and a link to the host's while files are written through it.
TEST_P(FilesApiAttack, B05_ARaceWritesNothingOutside) {
  const std::string id = create();
  const std::string outside = host("outside");
  fs::create_directory(outside);
  ASSERT_EQ(::chmod(outside.c_str(), 0777), 0);
  Process race(launch({"exec", id, "--", "bash", "-c",
                       "cd /workspace; mkdir a b; ln -s '" + outside +
                           "' l; echo racing; "
                           "while :; do mv -T a t && mv -T l a && mv -T a l && mv -T t a; done"}));
  ASSERT_TRUE(race.wait_for_output("racing", seconds(20))) << race.err();
  unsigned long written = 0;
  for (unsigned long round = 0; round < rounds(); ++round) {
    written += file(id, "write", {"a/marker"}, "marker").status == 0 ? 1U : 0U;
    ASSERT_TRUE(fs::is_empty(outside)) << "round " << round;
  }
  // The control: some of them went through a real directory.
  EXPECT_GT(written, 0U);
  race.send(SIGKILL);
  race.wait(seconds(5));
  EXPECT_TRUE(fs::is_empty(outside));
}

TEST_P(FilesApiAttack, B06_ASwappedFileNeverHangsAReader) {
  const std::string id = create();
  Process race(launch({"exec", id, "--", "bash", "-c",
                       "cd /workspace; echo text > regular; mkfifo pipe; ln -s /dev/zero zero; "
                       "cp regular x; echo racing; while :; do for f in pipe zero regular; do "
                       "cp -aT --remove-destination $f x; done; done 2>/dev/null"}));
  ASSERT_TRUE(race.wait_for_output("racing", seconds(20))) << race.err();
  for (unsigned long round = 0; round < rounds() / 3; ++round) {
    for (const char* action : {"read", "write", "append"}) {
      const Run run = file(id, action, {"x"}, "new");
      ASSERT_FALSE(run.timed_out) << action;
      ASSERT_LT(run.out.size(), 100U) << action;
    }
  }
  race.send(SIGKILL);
  race.wait(seconds(5));
}

TEST_P(FilesApiAttack, B07_AHostileArchiveIsContainedAndReported) {
  const std::string id = create();
  std::string deep;
  for (int i = 0; i < 5000; ++i) {
    deep += "d/";
  }
  const std::string tar =
      tar_entry('0', "../x", "evil") + tar_entry('0', "/abs", "contained") +
      tar_entry('0', "a/../../x", "evil") + tar_entry('2', "d", "", "/etc") +
      tar_entry('0', "d/passwd", "evil") + tar_entry('2', "t", "", "/tmp") +
      tar_entry('0', "t/through", "evil") + tar_entry('1', "h", "", "/etc/passwd") +
      tar_entry('2', "s", "", "/etc/passwd") + tar_entry('1', "hs", "", "s") +
      tar_entry('3', "null") + tar_entry('4', "disk") + tar_entry('6', "pipe") +
      tar_entry('0', "suid", "#!/bin/sh\n", "", 06755) + tar_entry('0', "twice", "one") +
      tar_entry('0', "twice", "two") + tar_entry('0', "C:\\x", "name") +
      tar_entry('L', "long", deep) + tar_entry('0', "deep", "x") +
      tar_entry('L', "long", std::string(1020, 'n')) + tar_entry('0', "long", "x") +
      tar_entry('0', "nul", "x") + tar_entry('0', "last", "here") + std::string(1024, '\0');
  const Run in = attack({"cp", "--json", "-", id + ":in/"}, {.input = tar});
  EXPECT_EQ(in.status, 125);
  for (const char* refused : {"\"../x\"", "\"a/../../x\"", "\"d/passwd\"", "\"t/through\"", "\"h\"",
                              "\"hs\"", "\"null\"", "\"disk\"", "\"pipe\""}) {
    EXPECT_NE(in.out.find(refused), std::string::npos) << refused << in.out;
  }
  EXPECT_EQ(sh(id,
               "cd in; cat abs twice last 'C:\\x'; find suid -printf '%m\\n'; "
               "find .. -mindepth 1 -maxdepth 1 | wc -l; "
               "find . -type p -o -type c -o -type b; find d/ -maxdepth 1 | grep -c hostname$; "
               "find /tmp -name through")
                .out,
            "containedtwoherename755\n1\n1\n");
  EXPECT_NE(sh(id, "cat /etc/passwd").out, "evil");
  expect_usable(id, "an archive");
}

TEST_P(FilesApiAttack, B09_AHostileTreeIsCopiedOutOrRefused) {
  const std::string id = create();
  // gVisor's kernel does not tell of holes: there it takes as long as if it held something.
  const std::uint64_t size = walls().gvisor() ? 1ULL << 30 : 1ULL << 40;
  sh(id,
     "mkdir t; cd t; mkfifo pipe; truncate -s " + std::to_string(size) +
         " sparse; ln -s loop loop; mkdir no; "
         "touch no/x; chmod 0 no; echo fine > fine; chmod 4755 fine; python3 -c \"import socket; "
         "socket.socket(socket.AF_UNIX).bind('socket')\"; ln -s / root; mkdir ...; touch $'a\\nb'");
  Process grow(launch({"exec", id, "--", "bash", "-c",
                       "echo growing; while :; do echo x >> /workspace/t/grow; done"}));
  ASSERT_TRUE(grow.wait_for_output("growing", seconds(20)));
  const Run out = attack({"cp", id + ":t", host("t")}, {.timeout_seconds = 60});
  EXPECT_FALSE(out.timed_out);
  EXPECT_EQ(out.status, 125) << out.err;  // one directory could not be read
  EXPECT_NE(out.err.find("'no'"), std::string::npos) << out.err;
  EXPECT_NE(out.err.find("'pipe'"), std::string::npos) << out.err;
  EXPECT_EQ(read_text(host("t/fine")).value_or(""), "fine\n");
  struct stat info{};
  ASSERT_EQ(::lstat(host("t/fine").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755U);
  EXPECT_EQ(::lstat(host("t/pipe").c_str(), &info), -1);
  EXPECT_TRUE(fs::is_symlink(host("t/root")));
  EXPECT_EQ(fs::file_size(host("t/sparse")), size);
  ASSERT_EQ(::stat(host("t/sparse").c_str(), &info), 0);
  EXPECT_LT(info.st_blocks, 1000) << "it takes room on the host";
  grow.send(SIGKILL);
  grow.wait(seconds(5));
}

TEST_P(FilesApiAttack, B10_WhatNeverEndsIsRefusedAtOnce) {
  const std::string id = create();
  sh(id,
     "mkfifo pipe; python3 -c \"import socket; "
     "socket.socket(socket.AF_UNIX).bind('socket')\"");
  for (int round = 0; round < 20; ++round) {  // more than a guest has connections, in all
    for (const char* path : {"/dev/zero", "/dev/tty", "pipe", "socket", "/dev/full"}) {
      const Run run = file(id, "read", {path});
      EXPECT_FALSE(run.timed_out) << path;
      EXPECT_EQ(run.status, 125) << path;
    }
  }
  EXPECT_NE(file(id, "read", {"/proc/kmsg"}).timed_out, true);
  EXPECT_EQ(file(id, "write", {"pipe"}, "x").status, 125);
  EXPECT_EQ(file(id, "write", {"/dev/null"}, "x").status, 125);
  expect_usable(id, "endless files");
}

TEST_P(FilesApiAttack, B11_OddNamesPassThroughEveryVerb) {
  const std::string id = create();
  for (const std::string name : {"new\nline", "\x1b[31mred", "cr\rcr", "\xff\xfe", "-rf", "space ",
                                 "dot.", ";rm -rf .", "$(id)", "`id`", "%s%n", "\xe2\x80\xae"}) {
    EXPECT_EQ(file(id, "write", {name}, "x").status, 0) << name;
    EXPECT_EQ(file(id, "append", {name}, "y").status, 0) << name;
    EXPECT_EQ(file(id, "read", {name}).out, "xy") << name;
    EXPECT_EQ(file(id, "chmod", {name, "600"}).status, 0) << name;
    EXPECT_EQ(file(id, "str-replace", {name, "x", "z"}).status, 0) << name;
    EXPECT_EQ(file(id, "cp", {name, "d/" + name}).status, 0) << name;
    EXPECT_EQ(file(id, "mv", {name, "moved"}).status, 0) << name;
    const Run found = file(id, "find", {"d"});
    EXPECT_EQ(found.out.find('\x1b'), std::string::npos);
    EXPECT_EQ(std::count(found.out.begin(), found.out.end(), '\n'), 1) << found.out;
    EXPECT_EQ(file(id, "rm", {"moved"}).status, 0);
    EXPECT_EQ(file(id, "rm", {"d/" + name}).status, 0) << name;
    EXPECT_EQ(sh(id, "find . -mindepth 1").out, "./d\n") << name;
  }
}

TEST_P(FilesApiAttack, B13_AModeIsNeverThatOfWhatALinkLeadsTo) {
  const std::string id = create();
  const std::string planted = plant("CANARY_FILE");
  sh(id, "echo x > inside; chmod 640 inside; ln -s inside l; ln -s '" + planted + "' o");
  EXPECT_EQ(file(id, "chmod", {"l", "777"}).status, 125);
  EXPECT_EQ(file(id, "chmod", {"o", "777"}).status, 125);
  EXPECT_EQ(sh(id, "find inside -printf '%m\\n'").out, "640\n");
  struct stat info{};
  ASSERT_EQ(::stat(planted.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644U);
}

TEST_P(FilesApiAttack, B14_AWatchIsBoundedAndStaysInside) {
  const std::string id = create({"--memory", "1g"});
  sh(id, "ln -s '" + host("") + "' o; mkdir many; cd many; seq 5000 | xargs mkdir");
  EXPECT_EQ(file(id, "watch", {"o"}).status, 125);
  EXPECT_EQ(file(id, "watch", {"/proc"}).status, 125);
  EXPECT_EQ(file(id, "watch", {"/proc/self"}).status, 125);
  const Run many = attack({"file", "watch", "-r", id, "many"}, {.timeout_seconds = 20});
  EXPECT_FALSE(many.timed_out);
  EXPECT_EQ(many.status, 125) << many.out;
  EXPECT_NE(many.err.find("limit of 4096"), std::string::npos) << many.err;
  expect_usable(id, "watches");
}

TEST_P(FilesApiAttack, B15_RangesDoNotOverflow) {
  const std::string id = create();
  sh(id, "echo text > f");
  for (const char* option : {"--bytes", "--lines"}) {
    for (const char* range :
         {"-1", "-1:5", "9223372036854775807:", "18446744073709551615:1",
          "99999999999999999999:", "x", "9223372036854775807:9223372036854775807"}) {
      const Run run = attack({"file", "read", id, "f", std::string(option) + "=" + range});
      EXPECT_EQ(run.status, 125) << option << range;
      EXPECT_EQ(run.out, "");
    }
  }
  EXPECT_EQ(attack({"file", "read", id, "f", "--bytes", "1:9223372036854775807"}).out, "ext\n");
  EXPECT_EQ(attack({"file", "read", id, "f", "--lines", "1:9223372036854775807"}).out, "text\n");
}

TEST_P(FilesApiAttack, B19_TwoWritersLeaveOneWholeFile) {
  const std::string id = create();
  const std::string half(1U << 20, 'a');
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(file(id, "write", {"f"}, std::string(3U << 20, 'o')).status, 0);
    Process aborted(launch({"file", "write", id, "f"}));
    aborted.write(half);
    Process other(launch({"file", "write", id, "f"}));
    other.write(std::string(2U << 20, 'b'));
    aborted.send(SIGKILL);
    aborted.wait(seconds(5));
    EXPECT_EQ(sh(id, "tr -d o < f | wc -c; wc -c < f").out, "0\n3145728\n");
    EXPECT_EQ(other.wait(seconds(20)).status, 0);
    EXPECT_EQ(sh(id, "tr -d b < f | wc -c; wc -c < f").out, "0\n2097152\n");
  }
  // What was aborted has left nothing, a moment later.
  EXPECT_TRUE(eventually(seconds(5), [&] { return sh(id, "ls -A").out == "f\n"; }));
}

// What the sandbox's user may not, nobody may from outside.
TEST_P(FilesApiAttack, AWorkerHasTheRightsAndLimitsOfTheSandbox) {
  const std::string id = create({"--disk", "8m", "--memory", "64m"});
  EXPECT_EQ(file(id, "write", {"big"}, std::string(20U << 20, 'x')).status, 125);
  EXPECT_EQ(sh(id, "ls -A").out, "");
  EXPECT_EQ(file(id, "write", {"/etc/evil"}, "x").status, 125);
  EXPECT_EQ(file(id, "write", {"/proc/sys/kernel/hostname"}, "x").status, 125);
  // The worker's process, seen from inside: it has what all have, and cannot be looked into.
  const auto count = [&] { return sh(id, "set -- /proc/[0-9]*; echo $#").out; };
  // The guest, the spawner, and the shell with its minder.
  ASSERT_TRUE(eventually(seconds(5), [&] { return count() == "4\n"; })) << count();
  Process watch(launch({"file", "watch", "--json", id, "."}));
  ASSERT_TRUE(watch.wait_for_output("watching", seconds(10))) << watch.err();
  EXPECT_TRUE(eventually(seconds(5), [&] { return count() == "6\n"; })) << count();
  EXPECT_EQ(sh(id,
               "grep -h -e ^Uid: -e ^Seccomp: -e ^NoNewPrivs: -e ^CapEff: -e ^CapBnd: "
               "/proc/[0-9]*/status | sort -u | wc -l; "
               "cat /proc/[0-9]*/fdinfo/* 2>/dev/null | grep -c inotify")
                .out,
            "5\n0\n");
  watch.send(SIGKILL);
  watch.wait(seconds(5));
  EXPECT_TRUE(eventually(seconds(5), [&] { return count() == "4\n"; })) << count();
}

}  // namespace
}  // namespace carrel::test
