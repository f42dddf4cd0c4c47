// The files of a sandbox from outside: `carrel file` and `carrel cp`.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Files : public CarrelTest {
 protected:
  // `carrel file ACTION ID words`
  Run file_action(const Box& box, const std::string& action, std::vector<std::string> words,
                  const Options& options = {.timeout_seconds = 30}) const {
    words.insert(words.begin(), {"file", action, box.id()});
    return carrel(std::move(words), options);
  }
  json parsed(const Run& run) const {
    json object = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(object.is_object()) << run.out << run.err;
    return object.is_object() ? object : json::object();
  }
  void write(const Box& box, const std::string& path, const std::string& text) const {
    Run run = file_action(box, "write", {path}, {.input = text});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string read(const Box& box, const std::string& path) const {
    Run run = file_action(box, "read", {path});
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  }
  [[nodiscard]] std::string host(const std::string& name) const {
    return place().work(GetParam()) + "/" + name;
  }
  // Gives a tree that the test has made to the user of this instance.
  void give_all(const std::string& path) const {
    place().give(path, GetParam());
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (!entry.is_symlink()) {
        place().give(entry.path(), GetParam());
      }
    }
  }
  static mode_t mode_of(const std::string& path) {
    struct stat info{};
    return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
};
CARREL_AS_BOTH(Files);

// R138
TEST_P(Files, WhatIsMissingIsNotFound) {
  Box box(GetParam());
  write(box, "a.txt", "text\n");
  EXPECT_EQ(read(box, "a.txt"), "text\n");
  Run missing = file_action(box, "read", {"/nonexistent.txt"});
  EXPECT_EQ(missing.status, 125);
  EXPECT_TRUE(says_one_line(missing, "not found"));
  Run error = file_action(box, "read", {"--json", "/nonexistent.txt"});
  EXPECT_EQ(parsed(error)["error"]["code"], "not_found");
}

// R139, R149
TEST_P(Files, AWriteMakesTheFoldersAndBelongsToTheSandboxsUser) {
  Box box(GetParam());
  write(box, "nested/a/b.txt", "x");
  EXPECT_EQ(box.sh("find nested -printf '%u %m %y\\n'").out,
            "agent 755 d\nagent 755 d\nagent 644 f\n");
  EXPECT_EQ(box.sh("chmod 600 nested/a/b.txt").status, 0);
  EXPECT_TRUE(says_one_line(file_action(box, "write", {"new/"}, {.input = "x"}), "directory"));
  write(box, "nested/a/b.txt", "y");
  EXPECT_EQ(box.sh("find nested/a/b.txt -printf '%m\\n'; cat nested/a/b.txt").out, "600\ny");
}

// R140
TEST_P(Files, ATreeGoesInAndOutAsItIs) {
  Box box(GetParam());
  fs::create_directories(host("tree/empty"));
  fs::create_directories(host("tree/locked"));
  write_text(host("tree/a b"), "text", 0640);
  write_text(host("tree/run.sh"), "#!/bin/sh\n", 0755);
  write_text(host("tree/locked/in"), "inside", 0444);
  fs::create_symlink("a b", host("tree/link"));
  fs::create_symlink("/nowhere", host("tree/dangling"));
  give_all(host("tree"));
  ASSERT_EQ(::chmod(host("tree/locked").c_str(), 0555), 0);
  Run in = carrel({"cp", host("tree"), box.id() + ":/workspace/tree"});
  EXPECT_EQ(in.status, 0) << in.err;
  EXPECT_EQ(in.out, "");
  EXPECT_EQ(
      box.sh("cd tree; find * -prune -printf '%m %p\\n'; readlink link dangling; cat locked/in")
          .out,
      "640 a b\n777 dangling\n755 empty\n777 link\n555 locked\n755 run.sh\n"
      "a b\n/nowhere\ninside");
  Run out = carrel({"cp", box.id() + ":tree", host("back")});
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_EQ(mode_of(host("back/a b")), 0640U);
  EXPECT_EQ(mode_of(host("back/locked")), 0555U);
  EXPECT_EQ(mode_of(host("back/run.sh")), 0755U);
  EXPECT_EQ(fs::read_symlink(host("back/link")), "a b");
  EXPECT_EQ(fs::read_symlink(host("back/dangling")), "/nowhere");
  EXPECT_TRUE(fs::is_empty(host("back/empty")));
  EXPECT_EQ(read_text(host("back/locked/in")).value_or(""), "inside");
  EXPECT_EQ(fs::last_write_time(host("back/a b")), fs::last_write_time(host("tree/a b")));
  ::chmod(host("tree/locked").c_str(), 0755);
  ::chmod(host("back/locked").c_str(), 0755);
}

// R141
TEST_P(Files, CopiesOutGoToAFileOrIntoADirectory) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir d; echo one > d/f; echo two > g").status, 0);
  EXPECT_EQ(carrel({"cp", box.id() + ":g", host("file")}).status, 0);
  EXPECT_EQ(read_text(host("file")).value_or(""), "two\n");
  fs::create_directory(host("dir"));
  place().give(host("dir"), GetParam());
  EXPECT_EQ(carrel({"cp", box.id() + ":g", host("dir")}).status, 0);
  EXPECT_EQ(carrel({"cp", box.id() + ":d", host("dir")}).status, 0);
  EXPECT_EQ(carrel({"cp", box.id() + ":d/.", host("dir")}).status, 0);
  EXPECT_EQ(read_text(host("dir/g")).value_or(""), "two\n");
  EXPECT_EQ(read_text(host("dir/d/f")).value_or(""), "one\n");
  EXPECT_EQ(read_text(host("dir/f")).value_or(""), "one\n");
  Run over = carrel({"cp", box.id() + ":d", host("file")});
  EXPECT_EQ(over.status, 125);
  EXPECT_TRUE(says_one_line(over, "is a file on the host"));
  EXPECT_EQ(read_text(host("file")).value_or(""), "two\n");
  Run missing = carrel({"cp", box.id() + ":/none", host("new")});
  EXPECT_EQ(missing.status, 125);
  EXPECT_TRUE(says_one_line(missing, "not found"));
  EXPECT_FALSE(fs::exists(host("new")));
  Run absent = carrel({"cp", host("absent"), box.id() + ":x"});
  EXPECT_TRUE(says_one_line(absent, "not found"));
}

TEST_P(Files, CopiesInGoToAFileOrIntoADirectory) {
  Box box(GetParam());
  write_text(host("f"), "one");
  EXPECT_EQ(box.sh("mkdir d; ln -s d l").status, 0);
  EXPECT_EQ(carrel({"cp", host("f"), box.id() + ":d"}).status, 0);
  EXPECT_EQ(carrel({"cp", host("f"), box.id() + ":new/name"}).status, 0);
  EXPECT_EQ(carrel({"cp", "f", box.id() + ":l/through"}).status, 0);
  EXPECT_EQ(box.sh("cat d/f new/name d/through").out, "oneoneone");
  Run nowhere = carrel({"cp", "f", box.id() + ":none/"});
  EXPECT_EQ(nowhere.status, 125);
  EXPECT_EQ(carrel({"cp", "f", "g"}).status, 125);
  EXPECT_EQ(carrel({"cp", box.id() + ":f", box.id() + ":g"}).status, 125);
}

// R142
TEST_P(Files, APathThatClimbsIsRefusedAndLogged) {
  Box box(GetParam());
  write_text(host("f"), "x");
  for (const std::string path : {"a/../../etc/passwd", "..", "/workspace/../etc/passwd"}) {
    EXPECT_TRUE(says_one_line(file_action(box, "read", {path}), "potentially unsafe")) << path;
    EXPECT_TRUE(says_one_line(carrel({"cp", "f", box.id() + ":" + path}), "potentially unsafe"));
    EXPECT_TRUE(says_one_line(carrel({"cp", box.id() + ":" + path, "g"}), "potentially unsafe"));
    EXPECT_TRUE(says_one_line(file_action(box, "mv", {"a", path}), "potentially unsafe"));
  }
  int refused = 0;
  for (const json& event : box.events()) {
    refused += event.value("event", "") == "security" ? 1 : 0;
  }
  EXPECT_EQ(refused, 12);
  write(box, "a..b", "fine");
  EXPECT_EQ(read(box, "a..b"), "fine");
}

// R143, R144, R156
TEST_P(Files, RelativePathsStartAtTheWorkDirAndAbsoluteOnesAtTheSandboxsRoot) {
  Box box(GetParam());
  write(box, "x.txt", "x");
  write(box, "/workspace/y.txt", "y");
  write(box, "workspace_backup/x", "z");
  EXPECT_EQ(box.sh("cat /workspace/x.txt y.txt workspace_backup/x").out, "xyz");
  EXPECT_EQ(read(box, "/etc/hostname"), box.sh("cat /etc/hostname").out);
  EXPECT_NE(read(box, "/etc/hostname"), read_text("/etc/hostname").value_or("none"));
  Box elsewhere(GetParam(), {"--workdir", "/tmp"});
  write(elsewhere, "x.txt", "x");
  EXPECT_EQ(elsewhere.sh("cat /tmp/x.txt").out, "x");
}

// R145
TEST_P(Files, LinksLeadToWhatIsInTheSandbox) {
  Box box(GetParam());
  const std::string secret = host("secret");
  write_text(secret, "of the host");
  EXPECT_EQ(box.sh("ln -s '" + secret + "' l; ln -s /etc/passwd p").status, 0);
  EXPECT_TRUE(says_one_line(file_action(box, "read", {"l"}), "not found"));
  EXPECT_EQ(read(box, "p"), box.sh("cat /etc/passwd").out);
  file_action(box, "write", {"l"}, {.input = "evil"});
  EXPECT_EQ(read_text(secret).value_or(""), "of the host");
}

// R146
TEST_P(Files, ABinaryFileOfAnySizePassesInLittleMemory) {
  Box box(GetParam(), {"--disk", "600m", "--memory", "1g"});
  constexpr std::size_t kSize = 200U << 20;
  {
    std::ofstream big(host("big"), std::ios::binary);
    std::string piece(1U << 20, '\0');
    unsigned long long state = 88172645463325252ULL;
    for (std::size_t done = 0; done < kSize; done += piece.size()) {
      for (std::size_t i = 0; i < piece.size(); i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::memcpy(piece.data() + i, &state, 8);
      }
      big << piece;
    }
  }
  Run in = carrel({"cp", "big", box.id() + ":/tmp/big"});
  if (in.status != 0) {  // /tmp is small in some sandboxes
    in = carrel({"cp", "big", box.id() + ":big"});
  }
  const std::string where = box.sh("ls /tmp/big 2>/dev/null || echo big").out;
  ASSERT_EQ(in.status, 0) << in.err;
  Run out = carrel({"cp", box.id() + ":" + where.substr(0, where.size() - 1), "back"});
  ASSERT_EQ(out.status, 0) << out.err;
  EXPECT_TRUE(read_text(host("big")) == read_text(host("back")));
  EXPECT_LT(in.max_rss_kib, 64 << 10);
  EXPECT_LT(out.max_rss_kib, 64 << 10);
}

TEST_P(Files, AFileOfTwoGigabytesNeedsLittleMemoryToMove) {
  Box box(GetParam());
  // Holes travel as holes; this one is made of bytes on the way to the standard output.
  EXPECT_EQ(box.sh("truncate -s 2G sparse").status, 0);
  Launch launched = launch({"cp", box.id() + ":sparse", "-"});
  launched.arguments = {"-c", "'" + launched.program + "' cp " + box.id() + ":sparse - | wc -c"};
  launched.program = "/bin/sh";
  Process pipe(launched);
  Run counted = pipe.wait(seconds(60));
  EXPECT_EQ(counted.out, "2147483648\n") << counted.err;
  EXPECT_LT(counted.max_rss_kib, 64 << 10);
  Run out = carrel({"cp", box.id() + ":sparse", "sparse"});
  EXPECT_EQ(out.status, 0) << out.err;
  struct stat info{};
  ASSERT_EQ(::stat(host("sparse").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 2LL << 30);
  EXPECT_LT(info.st_blocks, 1000);
}

// R147
TEST_P(Files, NamesAreDataAndNeverShellText) {
  Box box(GetParam());
  const std::vector<std::string> names = {"a; touch pwned #",
                                          "$(touch pwned)",
                                          "`touch pwned`",
                                          "a b",
                                          "a'b\"c",
                                          "new\nline",
                                          "-rf",
                                          "--help",
                                          "*",
                                          "\xff\xfe",
                                          " ",
                                          "trailing. "};
  for (const std::string& name : names) {
    Run run = carrel({"file", "write", box.id(), "--", name}, {.input = name});
    EXPECT_EQ(run.status, 0) << name << run.err;
    EXPECT_EQ(carrel({"file", "read", box.id(), "--", name}).out, name);
    EXPECT_EQ(carrel({"file", "mv", box.id(), "--", name, name + "2"}).status, 0) << name;
    EXPECT_EQ(carrel({"cp", "--", box.id() + ":" + name + "2", "./back"}).status, 0) << name;
    EXPECT_EQ(read_text(host("back")).value_or(""), name);
  }
  json listed = parsed(file_action(box, "ls", {"--json"}));
  EXPECT_EQ(listed["entries"].size(), names.size()) << listed;
  EXPECT_TRUE(has(listed.dump(), "\"path_b64\":\"//4y\"")) << listed;
  EXPECT_EQ(box.sh("ls -d pwned /pwned 2>/dev/null").out, "");
}

// R150
TEST_P(Files, AFailedCopyIsAnErrorAndLeavesNothingHalfWritten) {
  Box box(GetParam(), {"--disk", "8m"});
  write_text(host("f"), std::string(16U << 20, 'x'));
  Run readonly = carrel({"cp", "f", box.id() + ":/usr/f"});
  EXPECT_EQ(readonly.status, 125);
  EXPECT_TRUE(says_one_line(readonly, "/usr/f"));
  write(box, "kept", "old");
  Run full = carrel({"cp", "f", box.id() + ":kept"});
  EXPECT_EQ(full.status, 125) << full.err;
  EXPECT_EQ(box.sh("cat kept; ls -A").out, "oldkept\n");
  fs::create_directory(host("tree"));
  write_text(host("tree/f"), std::string(16U << 20, 'x'));
  EXPECT_EQ(carrel({"cp", "tree", box.id() + ":tree"}).status, 125);
  EXPECT_EQ(box.sh("ls -A tree").out, "");
  // On the host's side.
  EXPECT_EQ(carrel({"cp", box.id() + ":kept", "/proc/none"}).status, 125);
}

// R151
TEST_P(Files, CreateRefusesWhatExistsAndTakesNothingAsContents) {
  Box box(GetParam());
  EXPECT_EQ(file_action(box, "create", {"d/e/f", "--text", "one", "--mode", "755"}).status, 0);
  EXPECT_EQ(box.sh("cat d/e/f; find d -printf '%m\\n'").out, "one755\n755\n755\n");
  Run second = file_action(box, "create", {"d/e/f", "--text", "two"});
  EXPECT_EQ(second.status, 125);
  EXPECT_TRUE(says_one_line(second, "exists already"));
  EXPECT_EQ(read(box, "d/e/f"), "one");
  EXPECT_EQ(file_action(box, "create", {"empty"}).status, 0);
  EXPECT_EQ(box.sh("find empty -printf '%s %m\\n'").out, "0 644\n");
  EXPECT_EQ(box.sh("ln -s nowhere l").status, 0);
  EXPECT_TRUE(says_one_line(file_action(box, "create", {"l"}), "exists already"));
  EXPECT_EQ(file_action(box, "create", {"x", "--mode", "4755"}).status, 125);
}

// R152
TEST_P(Files, StrReplaceNeedsExactlyOneOccurrence) {
  Box box(GetParam());
  write(box, "Makefile", "all:\n\tcc a.c\n\tcc b.c\n");
  EXPECT_EQ(file_action(box, "str-replace", {"Makefile", "\tcc a.c\n", "\tclang a.c\n"}).status, 0);
  EXPECT_EQ(read(box, "Makefile"), "all:\n\tclang a.c\n\tcc b.c\n");
  Run none = file_action(box, "str-replace", {"Makefile", "    cc b.c", "x"});
  EXPECT_EQ(none.status, 125);
  EXPECT_TRUE(says_one_line(none, "was not found in 'Makefile'"));
  write(box, "two", "x\ny\nx\n");
  Run many = file_action(box, "str-replace", {"two", "x", "z"});
  EXPECT_EQ(many.status, 125);
  EXPECT_TRUE(says_one_line(many, "occurs 2 times in 'two', on lines 1, 3"));
  EXPECT_EQ(read(box, "two"), "x\ny\nx\n");
  EXPECT_EQ(file_action(box, "str-replace", {"two", "y\n", ""}).status, 0);
  EXPECT_EQ(read(box, "two"), "x\nx\n");
  EXPECT_TRUE(says_one_line(file_action(box, "str-replace", {"none", "a", "b"}), "not found"));
  EXPECT_EQ(file_action(box, "str-replace", {"two", "", "b"}).status, 125);
}

// R153, R154
TEST_P(Files, RewriteNeedsAFileAndDeleteRemovesIt) {
  Box box(GetParam());
  EXPECT_TRUE(says_one_line(file_action(box, "rewrite", {"d/f", "--text", "x"}), "does not exist"));
  EXPECT_EQ(box.sh("ls -A").out, "");
  write(box, "f", "long old contents");
  EXPECT_EQ(file_action(box, "rewrite", {"f", "--text", "new"}).status, 0);
  EXPECT_EQ(read(box, "f"), "new");
  EXPECT_EQ(file_action(box, "delete", {"f"}).status, 0);
  EXPECT_TRUE(says_one_line(file_action(box, "delete", {"f"}), "does not exist"));
}

// R155
TEST_P(Files, PartsOfAFileAreReadByLinesAndBytes) {
  Box box(GetParam());
  write(box, "f", "1\n22\n333\n4444\n5\n6");
  EXPECT_EQ(file_action(box, "read", {"f", "--lines", "3:5"}).out, "333\n4444\n5\n");
  EXPECT_EQ(file_action(box, "read", {"f", "--lines", "6"}).out, "6");
  EXPECT_EQ(file_action(box, "read", {"f", "--lines", "5:"}).out, "5\n6");
  EXPECT_EQ(file_action(box, "read", {"f", "--lines", ":2"}).out, "1\n22\n");
  EXPECT_EQ(file_action(box, "read", {"f", "--lines", "5:99"}).out, "5\n6");
  EXPECT_EQ(file_action(box, "read", {"f", "--bytes", "2:3"}).out, "22\n");
  EXPECT_EQ(file_action(box, "read", {"f", "--bytes", "16:"}).out, "6");
  EXPECT_EQ(file_action(box, "read", {"f", "--bytes", "17:"}).out, "");
  for (const std::string range : {"7:8", "18446744073709551615:"}) {
    EXPECT_EQ(file_action(box, "read", {"f", "--lines", range}).status, 125) << range;
  }
  json part = parsed(file_action(box, "read", {"f", "--lines", "2", "--json"}));
  EXPECT_EQ(part["content"], "22\n");
}

// R158
TEST_P(Files, AListingLeavesOutWholeNames) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir -p rebuild build src/node_modules .git a/dist; touch rebuild/a.c build/b "
                   "src/c.c src/node_modules/m src/i.png .git/HEAD a/dist/d package-lock.json")
                .status,
            0);
  EXPECT_EQ(file_action(box, "find", {".", "--skip-usual"}).out,
            "a\nrebuild\nrebuild/a.c\nsrc\nsrc/c.c\n");
  EXPECT_EQ(file_action(box, "find", {".", "--exclude", "*.c,.git,build", "--name", "[a-m]*"}).out,
            "a\na/dist\na/dist/d\nsrc/i.png\nsrc/node_modules/m\n");
  EXPECT_EQ(file_action(box, "ls", {"src", "--name", "*.c"}).status, 0);
}

TEST_P(Files, SearchFindsLinesWithTheirNumbers) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir d; printf 'one\\ntwo Needle\\n' > d/f; printf 'needle' > g; "
                   "head -c 3000 /dev/zero > binary; echo needle >> binary; mkfifo pipe")
                .status,
            0);
  EXPECT_EQ(file_action(box, "grep", {".", "needle"}).out, "g:1:needle\n");
  Run both = file_action(box, "grep", {".", "-i", "needle"});
  EXPECT_TRUE(has(both.out, "d/f:2:two Needle\n")) << both.out;
  EXPECT_EQ(file_action(box, "grep", {".", "absent"}).status, 1);
  EXPECT_EQ(box.sh("head -c 600000 /dev/zero | tr '\\0' x > long; echo needle >> long").status, 0);
  EXPECT_TRUE(has(file_action(box, "grep", {"long", "needle"}).out, "long:1:"));
}

TEST_P(Files, FilesAreMovedCopiedRemovedAndChanged) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir -p d/e; echo x > d/e/f; chmod 640 d/e/f; ln -s f d/e/l").status, 0);
  EXPECT_EQ(file_action(box, "cp", {"d", "copy"}).status, 0);
  EXPECT_EQ(box.sh("find copy/e/f -printf '%m\\n'; readlink copy/e/l").out, "640\nf\n");
  EXPECT_EQ(file_action(box, "cp", {"d", "d"}).status, 0);  // into itself
  EXPECT_EQ(box.sh("cat d/d/e/f; test -e d/d/d || echo once").out, "x\nonce\n");
  EXPECT_EQ(file_action(box, "mv", {"copy", "/tmp/moved/here"}).status, 0);
  EXPECT_EQ(box.sh("cat /tmp/moved/here/e/f; test -e copy || echo gone").out, "x\ngone\n");
  EXPECT_EQ(file_action(box, "chmod", {"d/e/f", "4755"}).status, 125);
  EXPECT_EQ(file_action(box, "chmod", {"d/e/f", "755"}).status, 0);
  EXPECT_EQ(box.sh("find d/e/f -printf '%m\\n'").out, "755\n");
  EXPECT_EQ(file_action(box, "mkdir", {"m/n", "--mode", "700"}).status, 0);
  EXPECT_EQ(box.sh("find m -printf '%m\\n'").out, "755\n700\n");
  EXPECT_TRUE(says_one_line(file_action(box, "rm", {"d"}), "recursively"));
  EXPECT_EQ(file_action(box, "rm", {"-r", "d"}).status, 0);
  EXPECT_EQ(file_action(box, "rm", {"m/n"}).status, 0);
  EXPECT_EQ(box.sh("find . -mindepth 1").out, "./m\n");
  write(box, "log", "a");
  EXPECT_EQ(file_action(box, "append", {"log"}, {.input = "b"}).status, 0);
  EXPECT_EQ(file_action(box, "append", {"new/log"}, {.input = "c"}).status, 0);
  EXPECT_EQ(box.sh("cat log new/log").out, "abc");
  EXPECT_EQ(parsed(file_action(box, "stat", {"log", "--json"}))["size"], 2);
}

TEST_P(Files, AWatchTellsWhatHappensBelow) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir d").status, 0);
  Process watch(launch({"file", "watch", box.id(), ".", "-r", "--json"}));
  ASSERT_TRUE(watch.wait_for_output("watching", seconds(10))) << watch.err();
  EXPECT_EQ(box.sh("echo x > d/f; mv d/f d/g; mkdir d/new; sleep 0.2; echo y > d/new/h; rm d/g; "
                   "mv d/new /tmp; sleep 0.2")
                .status,
            0);
  EXPECT_TRUE(watch.wait_for_output("\"remove\",\"directory\":true", seconds(10)));
  watch.send(SIGTERM);
  const std::string out = watch.wait(seconds(5)).out;
  for (const char* event : {R"({"event":"create","directory":false,"path":"d/f"})",
                            R"({"event":"write","directory":false,"path":"d/f"})",
                            R"({"event":"rename","directory":false,"path":"d/f","to":"d/g"})",
                            R"({"event":"create","directory":true,"path":"d/new"})",
                            R"({"event":"create","directory":false,"path":"d/new/h"})",
                            R"({"event":"remove","directory":false,"path":"d/g"})",
                            R"({"event":"remove","directory":true,"path":"d/new"})"}) {
    EXPECT_TRUE(has(out, event)) << event << "\n" << out;
  }
}

TEST_P(Files, ArchivesGoInAndOutAsStreams) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("mkdir -p d/e; echo one > d/e/f; ln -s e/f d/l; chmod 750 d/e").status, 0);
  Run tar = carrel({"cp", box.id() + ":d", "-"});
  ASSERT_EQ(tar.status, 0) << tar.err;
  EXPECT_EQ(tar.out.size() % 512, 0U);
  Box other(GetParam());
  Run in = carrel({"cp", "-", other.id() + ":/workspace"}, {.input = tar.out});
  EXPECT_EQ(in.status, 0) << in.err;
  EXPECT_EQ(other.sh("cat d/e/f; readlink d/l; find d/e -prune -printf '%m\\n'").out,
            "one\ne/f\n750\n");
  EXPECT_EQ(carrel({"cp", "-", other.id() + ":new/"}, {.input = tar.out}).status, 0);
  EXPECT_EQ(other.sh("cat new/d/e/f").out, "one\n");
  // A file takes and gives its bytes.
  EXPECT_EQ(carrel({"cp", "-", other.id() + ":a.tar"}, {.input = tar.out}).status, 0);
  EXPECT_TRUE(carrel({"cp", other.id() + ":a.tar", "-"}).out == tar.out);
  Run broken = carrel({"cp", "-", other.id() + ":/workspace"}, {.input = "no tar"});
  EXPECT_EQ(broken.status, 125);
  EXPECT_TRUE(says_one_line(broken, "not a whole tar"));
}

TEST_P(Files, ASandboxThatIsGoneOrFullOfProcessesIsAClearError) {
  Run gone = carrel({"file", "read", "nosuchbox", "x"});
  EXPECT_EQ(gone.status, 125);
  EXPECT_EQ(gone.out, "");
  Box box(GetParam(), {"--pids", "12"});
  Process hog(launch({"exec", box.id(), "--", "python3", "-c",
                      "import os, time\ntry:\n  while True:\n    if os.fork() == 0:\n"
                      "      time.sleep(30)\n      os._exit(0)\n"
                      "except OSError:\n  print('full', flush=True)\n  time.sleep(30)\n"}));
  ASSERT_TRUE(hog.wait_for_output("full", seconds(20))) << hog.err();
  Run full = file_action(box, "ls", {});
  EXPECT_EQ(full.status, 125) << full.out;
  EXPECT_EQ(std::count(full.err.begin(), full.err.end(), '\n'), 1) << full.err;
  hog.send(SIGKILL);
}

}  // namespace
}  // namespace carrel::test
