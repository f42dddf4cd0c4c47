// A workspace that begins as a copy of a directory of the host, and the way back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Apply : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    source_ = place().work(GetParam()) + "/project";
    put("main.c", "int main() {}\n");
    put("notes", "one\n");
    put("lib/a.c", "a\n");
    put("lib/b.c", "b\n");
    put(".git/config", "[core]\n");
    ASSERT_EQ(::chmod((source_ + "/main.c").c_str(), 0755), 0);
  }
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      for (const auto& one : fs::directory_iterator(place().home(GetParam()) + "/workspaces")) {
        EXPECT_EQ(carrel({"workspace", "rm", one.path().filename()}).status, 0);
      }
    }
    CarrelTest::TearDown();
  }

  void give_all(const std::string& path) const {
    for (fs::path at = path; at.string().size() >= source_.size(); at = at.parent_path()) {
      place().give(at, GetParam());
    }
  }
  void put(const std::string& name, const std::string& text) const {
    const fs::path path = source_ + "/" + name;
    fs::create_directories(path.parent_path());
    write_text(path, text);
    give_all(path);
  }
  std::string get(const std::string& name) const {
    return read_text(source_ + "/" + name).value_or("(none)");
  }
  bool has(const std::string& name) const {
    return fs::symlink_status(source_ + "/" + name).type() != fs::file_type::not_found;
  }

  // A sandbox with a copy of the project, as the workspace "w".
  Box copy() const { return Box(GetParam(), {"--workspace-from", source_, "--workspace", "w"}); }
  static void does(const Box& box, const std::string& script) {
    const Run run = box.sh(script);
    EXPECT_EQ(run.status, 0) << script << "\n" << run.err;
  }
  Run apply(std::vector<std::string> paths = {}) const {
    paths.insert(paths.begin(), {"apply", "--yes", "w"});
    return carrel(paths);
  }
  // What `apply` says, by path: that it was done, or why not.
  std::map<std::string, std::string> applies(std::vector<std::string> paths = {}) const {
    paths.insert(paths.begin(), {"apply", "--yes", "--json", "w"});
    const json said = json::parse(carrel(paths).out, nullptr, false);
    std::map<std::string, std::string> all;
    for (const json& path : said.value("applied", json::array())) {
      all[path] = "applied";
    }
    for (const json& one : said.value("conflicts", json::array())) {
      all[one["path"]] = one["reason"];
    }
    return all;
  }
  // Every name, and what is in it.
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> all;
    for (const auto& one : fs::recursive_directory_iterator(source_)) {
      struct stat info{};
      EXPECT_EQ(::lstat(one.path().c_str(), &info), 0);
      all[one.path().lexically_relative(source_)] =
          std::to_string(info.st_mode) + " " + std::to_string(info.st_uid) + " " +
          (S_ISREG(info.st_mode) ? read_text(one.path()).value_or("") : "");
    }
    return all;
  }

  std::string source_;
};
CARREL_AS_BOTH(Apply);

TEST_P(Apply, TheSandboxHasACopyAndTheSourceStaysAsItIs) {
  const auto before = everything();
  const Box box = copy();
  EXPECT_EQ(box.sh("cat notes lib/a.c .git/config; find main.c -printf '%m %u\\n'; pwd").out,
            "one\na\n[core]\n755 agent\n/workspace\n");
  does(box, "rm -rf lib .git; echo two > notes; echo new > new; chmod 777 main.c");
  EXPECT_EQ(everything(), before);
}

TEST_P(Apply, ChangesGoBackAndNothingElse) {
  const Box box = copy();
  does(box,
       "echo two >> notes; rm lib/b.c; mkdir -p deep/er; echo n > deep/er/new; "
       "mv lib/a.c lib/c.c; ln -s notes link; echo '#!/bin/sh' > tool; chmod 4755 tool");
  put("untouched", "mine\n");
  const Run applied = apply();
  EXPECT_EQ(applied.status, 0) << applied.err;
  EXPECT_NE(applied.out.find("M  notes\n"), std::string::npos) << applied.out;
  EXPECT_NE(applied.out.find("R  lib/a.c -> lib/c.c\n"), std::string::npos) << applied.out;
  EXPECT_EQ(get("notes"), "one\ntwo\n");
  EXPECT_EQ(get("deep/er/new"), "n\n");
  EXPECT_EQ(get("lib/c.c"), "a\n");
  EXPECT_FALSE(has("lib/b.c") || has("lib/a.c"));
  EXPECT_EQ(fs::read_symlink(source_ + "/link"), "notes");
  EXPECT_EQ(get("untouched"), "mine\n");
  struct stat info{};
  ASSERT_EQ(::stat((source_ + "/tool").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07111U, 0111U) << "executable, and no set-id bit";
  EXPECT_EQ(info.st_uid, as_root() ? 0U : Place::user_id());
  const Run again = apply();
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, "") << "it is done already";
}

TEST_P(Apply, CredentialsAreLeftOutAndThatIsSaid) {
  put(".env", "TOKEN=secret\n");
  put("lib/id_rsa", "secret\n");
  put(".aws/credentials", "secret\n");
  const Run made = carrel({"create", "--workspace-from", source_, "--workspace", "w"});
  ASSERT_EQ(made.status, 0) << made.err;
  for (const char* name : {".env", "lib/id_rsa", ".aws"}) {
    EXPECT_NE(made.err.find(std::string("left out of the workspace: ") + name), std::string::npos)
        << name << ": " << made.err;
  }
  const std::string id = made.out.substr(0, 36);
  EXPECT_EQ(carrel({"sh", id, "grep -rl secret . | wc -l; ls -A"}).out,
            "0\n.git\nlib\nmain.c\nnotes\n");
  EXPECT_EQ(std::system(("grep -rq TOKEN " + place().home(GetParam())).c_str()) == 0, false)
      << "and it is in no layer";
  // What was left out is not removed by applying.
  EXPECT_EQ(carrel({"sh", id, "rm -rf lib; echo two > notes"}).status, 0);
  EXPECT_EQ(apply().status, 0);
  EXPECT_EQ(get(".env"), "TOKEN=secret\n");
  EXPECT_EQ(get("lib/id_rsa"), "secret\n");
  EXPECT_FALSE(has("lib/a.c"));
}

TEST_P(Apply, DiffFromTheOriginShowsWhatWouldBeApplied) {
  const Box box = copy();
  EXPECT_EQ(carrel({"diff", "w", "--from", "origin"}).out, "");
  does(box, "echo two >> notes");
  EXPECT_EQ(carrel({"snapshot", "w"}).status, 0);
  does(box, "rm lib/b.c");
  EXPECT_EQ(carrel({"diff", "w", "--names"}).out, "D  lib/b.c\n");
  EXPECT_EQ(carrel({"diff", "w", "--from", "origin", "--names"}).out, "D  lib/b.c\nM  notes\n");
  EXPECT_EQ(applies(),
            (std::map<std::string, std::string>{{"lib/b.c", "applied"}, {"notes", "applied"}}));
}

TEST_P(Apply, OnlyWhatIsChosen) {
  const Box box = copy();
  does(box,
       "echo x >> notes; echo x >> lib/a.c; echo x >> lib/b.c; echo x > library; echo x >> main.c");
  EXPECT_EQ(applies({"lib"}),
            (std::map<std::string, std::string>{{"lib/a.c", "applied"}, {"lib/b.c", "applied"}}));
  EXPECT_EQ(applies({"/workspace/notes", "./library"}),
            (std::map<std::string, std::string>{{"library", "applied"}, {"notes", "applied"}}));
  EXPECT_EQ(get("main.c"), "int main() {}\n");
  EXPECT_TRUE(applies({"../project/main.c", "/etc"}).empty());
  EXPECT_EQ(applies({"."}), (std::map<std::string, std::string>{{"main.c", "applied"}}));
}

TEST_P(Apply, AConflictMeansThatNothingIsApplied) {
  const Box box = copy();
  does(box, "echo box >> notes; rm lib/a.c; echo box > fresh; echo box >> lib/b.c; rm main.c");
  put("notes", "one\nhost\n");
  put("lib/a.c", "changed\n");
  put("fresh", "host\n");
  ASSERT_EQ(::unlink((source_ + "/main.c").c_str()), 0);  // both removed it
  const auto before = everything();
  const Run refused = apply();
  EXPECT_EQ(refused.status, 125);
  for (const char* line : {"carrel: notes: it was changed there, too\n",
                           "carrel: lib/a.c: it was changed there, too\n",
                           "carrel: fresh: something is there already\n", "nothing was applied"}) {
    EXPECT_NE(refused.err.find(line), std::string::npos) << line << refused.err;
  }
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(applies().count("main.c"), 0U) << "it is done already";
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(applies({"lib/b.c"}), (std::map<std::string, std::string>{{"lib/b.c", "applied"}}));
  EXPECT_EQ(get("lib/b.c"), "b\nbox\n");
}

TEST_P(Apply, LinksThatLeadOutAreRefused) {
  const Box box = copy();
  const std::string outside = file("outside", "host\n");
  for (const std::string target : {"/etc/passwd", "../outside", "lib/../../outside", "..",
                                   "lib/x/../../../outside", "/workspace/notes"}) {
    does(box, "ln -sfn '" + target + "' bad");
    const auto before = everything();
    const Run refused = apply();
    EXPECT_EQ(refused.status, 125) << target;
    EXPECT_NE(refused.err.find("bad: it is a link that leads out"), std::string::npos)
        << target << ": " << refused.err;
    EXPECT_EQ(everything(), before) << target;
  }
  does(box, "rm bad; ln -s ../notes lib/good; ln -s lib/../notes alsogood");
  EXPECT_EQ(apply().status, 0);
  EXPECT_EQ(fs::read_symlink(source_ + "/lib/good"), "../notes");
}

// Nothing is written through a link of the directory, or of the workspace.
TEST_P(Apply, NoLinkIsFollowed) {
  const std::string outside = place().work(GetParam()) + "/outside";
  ASSERT_EQ(::mkdir(outside.c_str(), 0755), 0);
  write_text(outside + "/a.c", "a\n");
  place().give(outside, GetParam());
  place().give(outside + "/a.c", GetParam());
  const Box box = copy();
  does(box, "echo evil >> lib/a.c; echo evil >> notes");
  // On the host a directory and a file became links since.
  fs::remove_all(source_ + "/lib");
  fs::create_directory_symlink(outside, source_ + "/lib");
  fs::remove(source_ + "/notes");
  fs::create_symlink(outside + "/a.c", source_ + "/notes");
  EXPECT_NE(apply().status, 0);
  EXPECT_EQ(read_text(outside + "/a.c"), "a\n");
  // In the workspace a directory becomes one, and what was in it has changed.
  does(box, "rm -r lib; ln -s . lib");
  EXPECT_NE(apply({"lib"}).status, 0);
  EXPECT_EQ(read_text(outside + "/a.c"), "a\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(outside), {}), 1);
}

TEST_P(Apply, WhatGitRunsIsAppliedOnlyIfItIsNamed) {
  const Box box = copy();
  does(box,
       "mkdir -p .git/hooks sub/.git/hooks; echo evil > .git/hooks/post-checkout; "
       "echo evil >> .git/config; echo evil > sub/.git/config; echo two > notes; "
       "echo 'gitdir: ../x' > lib/.git");
  const std::map<std::string, std::string> only_notes = {{"notes", "applied"}, {"sub", "applied"}};
  EXPECT_EQ(applies(), only_notes);
  EXPECT_EQ(get(".git/config"), "[core]\n");
  EXPECT_FALSE(has(".git/hooks") || has("sub/.git") || has("lib/.git"));
  for (const char* all : {".", "/workspace", "/workspace/"}) {
    EXPECT_TRUE(applies({all}).empty()) << all << " does not name it";
  }
  EXPECT_EQ(get(".git/config"), "[core]\n");
  EXPECT_EQ(applies({".git/config"}),
            (std::map<std::string, std::string>{{".git/config", "applied"}}));
  EXPECT_EQ(get(".git/config"), "[core]\nevil\n");
}

TEST_P(Apply, WhatGitRunsIsNotRemovedByRenaming) {
  const Box box = copy();
  does(box, "mv .git/config stolen");
  applies();
  EXPECT_EQ(get(".git/config"), "[core]\n");
}

TEST_P(Apply, WithoutATerminalItNeedsYes) {
  const Box box = copy();
  does(box, "echo two > notes");
  const auto before = everything();
  for (const char* answer : {"", "y\n"}) {
    const Run asked = carrel({"apply", "w"}, {.input = answer});
    EXPECT_EQ(asked.status, 125);
    EXPECT_NE(asked.err.find("nothing was applied"), std::string::npos) << asked.err;
    EXPECT_NE(asked.err.find("--yes"), std::string::npos) << asked.err;
    EXPECT_EQ(asked.out, "M  notes\n") << "it shows what it would do";
  }
  EXPECT_EQ(everything(), before);
}

TEST_P(Apply, OnATerminalItAsks) {
  const Box box = copy();
  does(box, "echo two > notes");
  // `script` has the terminal.
  for (const auto& [answer, expected] :
       std::map<std::string, std::string>{{"n", "one\n"}, {"y", "two\n"}}) {
    Launch typed = launch({"apply", "w"});
    std::string words = typed.program;
    for (const std::string& word : typed.arguments) {
      words += " " + word;
    }
    typed.program = "/usr/bin/script";
    typed.arguments = {"-qec", words, "/dev/null"};
    Process process(typed);
    EXPECT_TRUE(process.wait_for_output("[y/N]", std::chrono::seconds(10))) << process.out();
    process.write(answer + "\n");
    const Run run = process.wait(std::chrono::seconds(10));
    EXPECT_NE(run.out.find("apply 1 change to " + source_), std::string::npos) << run.out;
    EXPECT_EQ(get("notes"), expected) << answer;
  }
}

// A reader finds the old file or the new one and never a part, and no draft is left.
TEST_P(Apply, AFileIsReplacedAtOnce) {
  put("large", std::string(3'000'000, 'a'));
  const Box box = copy();
  does(box, "tr a b < large > x; cat x > large; rm x");
  const int held = ::open((source_ + "/large").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(held, 0);
  Process applying(launch({"apply", "--yes", "w"}));
  std::string seen;
  EXPECT_TRUE(eventually(std::chrono::seconds(20), [&] {
    seen = get("large");
    EXPECT_TRUE(seen == std::string(3'000'000, 'a') || seen == std::string(3'000'000, 'b'));
    return seen[0] == 'b';
  }));
  EXPECT_EQ(applying.wait(std::chrono::seconds(10)).status, 0);
  char old = 0;
  EXPECT_EQ(::pread(held, &old, 1, 2'999'999), 1);
  EXPECT_EQ(old, 'a') << "whoever has it open keeps the old one";
  ::close(held);
  for (const auto& one : fs::directory_iterator(source_)) {
    EXPECT_FALSE(one.path().filename().string().starts_with(".carrel")) << one.path();
  }
}

TEST_P(Apply, ForbiddenSourcesAreRefusedAndNothingIsMade) {
  fs::create_directories(place().work(GetParam()) + "/.ssh");
  const std::string link = place().work(GetParam()) + "/innocent";
  fs::create_symlink("/etc", link);
  for (const std::string& forbidden :
       {std::string("/etc"), std::string("/proc"), std::string("/"), link, place().home(GetParam()),
        place().work(GetParam()) + "/.ssh", source_ + "/none"}) {
    const Run refused = carrel({"create", "--workspace-from", forbidden, "--workspace", "w"});
    EXPECT_EQ(refused.status, 125) << forbidden;
    EXPECT_TRUE(says_one_line(refused, "")) << forbidden << ": " << refused.err;
    EXPECT_EQ(carrel({"workspace", "ls", "--json"}).out, "{\"workspaces\":[]}\n") << forbidden;
  }
}

TEST_P(Apply, HostileNamesAreNames) {
  const Box box = copy();
  does(box,
       "printf x > $'a\\nb'; printf x > $'\\e[2J'; printf x > ' -rf'; mkdir -p '...' '~'; "
       "printf x > '.../ ..'; printf x > '~/$(touch pwned)'; printf x > $'\\xff\\xfe'");
  const Run applied = apply();
  EXPECT_EQ(applied.status, 0) << applied.err;
  EXPECT_EQ(applied.out.find('\x1b'), std::string::npos) << "a terminal would obey it";
  for (const std::string name :
       {"a\nb", "\x1b[2J", " -rf", ".../ ..", "~/$(touch pwned)", "\xff\xfe"}) {
    EXPECT_EQ(get(name), "x") << name;
  }
  EXPECT_FALSE(has("pwned"));
}

TEST_P(Apply, PipesAndSocketsDoNotGoBack) {
  const Box box = copy();
  does(box,
       "mkfifo lib/p; python3 -c \"import socket; "
       "socket.socket(socket.AF_UNIX).bind('sock')\"; echo two > notes");
  const auto before = everything();
  EXPECT_EQ(applies(), (std::map<std::string, std::string>{{"lib/p", "it is a pipe"}}));
  EXPECT_EQ(everything(), before);
  for (const char* unknown : {"sock", "nowhere"}) {
    const Run refused = apply({"notes", unknown});
    EXPECT_EQ(refused.status, 125);
    EXPECT_TRUE(says_one_line(refused, std::string("no '") + unknown + "'")) << refused.err;
  }
  EXPECT_EQ(applies({"notes"}), (std::map<std::string, std::string>{{"notes", "applied"}}));
  EXPECT_FALSE(has("sock") || has("lib/p"));
}

TEST_P(Apply, AFileForADirectoryAndTheOtherWayRound) {
  const Box box = copy();
  does(box, "mv lib/a.c zz; rm -r lib; echo file > lib; rm notes; mkdir notes; echo in > notes/f");
  const Run applied = apply();
  EXPECT_EQ(applied.status, 0) << applied.err;
  EXPECT_EQ(get("lib"), "file\n");
  EXPECT_EQ(get("zz"), "a\n");
  EXPECT_EQ(get("notes/f"), "in\n");
  // What was applied counts as known.
  does(box, "echo more >> lib; rm -r notes; echo again > notes");
  const Run again = apply();
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(get("lib") + get("notes"), "file\nmore\nagain\n");
}

TEST_P(Apply, AWorkspaceThatIsNoCopyCannotBeApplied) {
  EXPECT_EQ(bash("true", {"--workspace", "plain"}).status, 0);
  EXPECT_TRUE(says_one_line(carrel({"apply", "plain"}), "is no copy of a directory"));
  const Box box = copy();
  const Run twice = carrel({"create", "--workspace-from", source_, "--workspace", "w"});
  EXPECT_EQ(twice.status, 125);
  EXPECT_TRUE(says_one_line(twice, "already a workspace 'w'")) << twice.err;
  EXPECT_EQ(box.sh("cat notes").out, "one\n") << "and it is still there";
}

// Without a name it is there for what is run in it, and goes with that.
TEST_P(Apply, ACopyThatNobodyNamedGoesWithItsSandbox) {
  const auto names = [&] {
    std::string all;
    const json list = json::parse(carrel({"workspace", "ls", "--json"}).out, nullptr, false);
    for (const json& one : list.value("workspaces", json::array())) {
      all += one.value("name", "") + "\n";
    }
    return all;
  };
  EXPECT_EQ(carrel({"run", "--workspace-from", source_, "--", "true"}).status, 0);
  EXPECT_EQ(carrel({"run", "--workspace-from", source_, "--", "false"}).status, 1);
  EXPECT_EQ(
      carrel({"run", "--workspace-from", source_, "--timeout", "1", "--", "sleep", "9"}).status,
      124);
  EXPECT_EQ(
      carrel({"run", "--workspace-from", source_, "--image", "nowhere:1", "--", "true"}).status,
      125);
  EXPECT_EQ(names(), "");
  EXPECT_EQ(
      carrel({"run", "--workspace-from", source_, "--workspace", "kept", "--", "true"}).status, 0);
  EXPECT_EQ(names(), "kept\n");
  const Run made = carrel({"create", "--workspace-from", source_});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string id = made.out.substr(0, made.out.find('\n'));
  EXPECT_NE(names(), "kept\n");
  EXPECT_EQ(carrel({"diff", id, "--from", "origin"}).status, 0);
  EXPECT_EQ(carrel({"rm", "--force", id}).status, 0);
  EXPECT_EQ(names(), "kept\n");
}

}  // namespace
}  // namespace carrel::test
