// What everybody does first in a new sandbox works, without an option.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class FirstSteps : public CarrelTest {
 protected:
  // As a one-shot, and in the shell of a long-lived sandbox.
  void expect_both(const std::string& script, const std::string& out) const {
    const Run once = bash("set -e\n" + script);
    EXPECT_EQ(once.status, 0) << once.err;
    EXPECT_EQ(once.out, out) << once.err;
    Box box(GetParam());
    const Run shell = box.sh("(set -e\n" + script + ")", {}, {.timeout_seconds = 60});
    EXPECT_EQ(shell.status, 0) << shell.err;
    EXPECT_EQ(shell.out, out) << shell.err;
  }
  json result_of(const std::string& script, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"run", "--json"});
    options.insert(options.end(), {"--", "bash", "-c", script});
    const Run run = carrel(options);
    json result = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << run.out << run.err;
    return result.is_object() ? result : json::object();
  }
};
CARREL_AS_BOTH(FirstSteps);

// A wheel with a program in it, as an index of one's own would have it.
constexpr char kWheel[] =
    "mkdir -p index; python3 - <<'EOF'\n"
    "import zipfile\n"
    "with zipfile.ZipFile('index/tiny-1.0-py3-none-any.whl', 'w') as z:\n"
    "  i = 'tiny-1.0.dist-info/'\n"
    "  z.writestr('tiny.py', 'def main(): print(42)\\n')\n"
    "  z.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n"
    "  z.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n'\n"
    "             'Tag: py3-none-any\\n')\n"
    "  z.writestr(i + 'entry_points.txt', '[console_scripts]\\ntiny-tool = tiny:main\\n')\n"
    "  z.writestr(i + 'RECORD', ''.join(n + ',,\\n' for n in z.namelist() + [i + 'RECORD']))\n"
    "EOF\n";

bool has_pip() { return ::access("/usr/bin/pip3", X_OK) == 0; }

TEST_P(FirstSteps, PipInstallsAndThePackagesProgramIsFound) {
  if (!has_pip()) {
    GTEST_SKIP() << "this host has no python3-pip";
  }
  expect_both(std::string(kWheel) +
                  "pip install -q --no-index --find-links index tiny\n"
                  "tiny-tool; python3 -c 'import tiny; tiny.main()'\n"
                  "pip uninstall -qy tiny; hash -r; command -v tiny-tool || echo gone\n",
              "42\n42\ngone\n");
}

TEST_P(FirstSteps, PipWorksInAVirtualEnvironment) {
  if (!has_pip() || !std::filesystem::exists("/usr/lib/python3.11/ensurepip")) {
    GTEST_SKIP() << "this host has no python3-venv for Python 3.11";
  }
  const Run run = bash("set -e\n" + std::string(kWheel) +
                       "python3 -m venv env; env/bin/pip install -q --no-index --find-links index "
                       "tiny\nenv/bin/tiny-tool; command -v tiny-tool || echo only there\n");
  EXPECT_EQ(run.out, "42\nonly there\n") << run.err;
}

TEST_P(FirstSteps, WhatTheUserSaysOfPipHolds) {
  if (!has_pip() || !std::filesystem::exists("/usr/lib/python3.11/EXTERNALLY-MANAGED")) {
    GTEST_SKIP() << "this host's pip installs wherever it is told to";
  }
  const Run run = bash(std::string(kWheel) +
                       "mkdir -p ~/.config/pip\n"
                       "printf '[global]\\nbreak-system-packages = false\\n' > "
                       "~/.config/pip/pip.conf\n"
                       "pip install -q --no-index --find-links index tiny\n");
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("externally-managed-environment"));
}

TEST_P(FirstSteps, GitCommitsWithoutBeingConfigured) {
  const std::string begin = "git init -q r; cd r; echo x > f; git add f; ";
  const std::string show = "git log -1 --format='%an <%ae> %cn <%ce>'\n";
  expect_both(begin + "git commit -qm one; " + show,
              "agent <agent@sandbox> agent <agent@sandbox>\n");
  // The user's own settings come before it: of his home, of the repository, and by variables.
  expect_both(begin +
                  "git config --global user.name Me; git config user.email me@here.test\n"
                  "git commit -qm one; " +
                  show + "GIT_AUTHOR_NAME=Other git commit -q --amend --reset-author -m two; " +
                  show,
              "Me <me@here.test> Me <me@here.test>\nOther <me@here.test> Me <me@here.test>\n");
}

TEST_P(FirstSteps, PythonIsThereWherePython3Is) {
  if (::access("/usr/bin/python3", X_OK) != 0) {
    GTEST_SKIP() << "this host has no python3";
  }
  expect_both(
      "python -c 'import sys; print(sys.version_info[0], sys.prefix)'\n"
      "printf '#!/usr/bin/env python\\nprint(6 * 7)\\n' > f; chmod +x f; ./f\n"
      "python -m venv --without-pip env; env/bin/python -c 'import sys; print(sys.prefix)'\n",
      "3 /usr\n42\n/workspace/env\n");
}

// R76
TEST_P(FirstSteps, FourHundredThreadsRun) {
  const Run run = python(
      "import threading\n"
      "go = threading.Event()\n"
      "all = [threading.Thread(target=go.wait) for i in range(400)]\n"
      "for one in all: one.start()\n"
      "print(threading.active_count())\n"
      "go.set()\n"
      "for one in all: one.join()\n");
  EXPECT_EQ(run.out, "401\n") << run.err;
}

// R57, R82: a file that does not fit is an error of its writer's, and he is not ended for it.
TEST_P(FirstSteps, AFileThatDoesNotFitIsAnErrorAndNobodyIsEnded) {
  for (const std::string place : {"/workspace", "~", "/tmp", "/dev/shm"}) {
    const json result =
        result_of("dd if=/dev/zero of=" + place + "/f bs=1M count=600; s=$?; echo alive; exit $s");
    EXPECT_EQ(result["stdout"], "alive\n") << result;
    EXPECT_EQ(result["exit_code"], 1) << result;
    EXPECT_EQ(result["oom_killed"], false) << result;
    EXPECT_THAT(result["stderr"].get<std::string>(), HasSubstr("No space left on device"));
    EXPECT_THAT(result["reason"].get<std::string>(), HasSubstr("is full")) << place;
    EXPECT_THAT(result["causes"].dump(), HasSubstr("--memory")) << place;
  }
  // What is not full is not named.
  EXPECT_EQ(result_of("exit 3")["reason"], "exit status 3");
  const Run told = bash("dd if=/dev/zero of=f bs=1M count=600");
  EXPECT_THAT(told.err, HasSubstr("carrel: exit status 1; "));
}

constexpr char kFillAll[] =
    "for d in /workspace ~ /tmp /dev/shm; do dd if=/dev/zero of=$d/f bs=1M count=600; done "
    "2> /dev/null; ";
// Both what fills a file system and what is left for programs: a tenth of the memory.
constexpr char kWork[] = "python3 -c 'x = bytearray(50 << 20); print(\"works\")'";

TEST_P(FirstSteps, WithAllFileSystemsFullThereIsMemoryForPrograms) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--writable-root"}, {"--disk", "2g", "--tmp", "2g"}}) {
    const json result = result_of(std::string(kFillAll) + kWork, options);
    EXPECT_EQ(result["stdout"], "works\n") << result;
  }
  // And what `df` says is what there is.
  const Run sizes = bash(std::string(kFillAll) +
                         "df --output=avail /workspace /tmp | tail -n +2 | tr -d ' ' | sort -u");
  EXPECT_EQ(sizes.out, "0\n") << sizes.err;
}

TEST_P(FirstSteps, WithAsManySmallFilesAsFitThereIsMemoryForPrograms) {
  const Run run = python(
      "import os, subprocess\n"
      "for d in ('/workspace', '/tmp'):\n"
      "  os.mkdir(d + '/many')\n"
      "  try:\n"
      "    for i in range(10**6):\n"
      "      fd = os.open('%s/many/%d' % (d, i), os.O_CREAT | os.O_WRONLY)\n"
      "      try: os.write(fd, b'x')\n"
      "      finally: os.close(fd)\n"
      "  except OSError as e:\n"
      "    print(os.strerror(e.errno))\n"
      "x = bytearray(50 << 20)\n"
      "print('works')\n",
      {"--timeout", "120"});
  EXPECT_EQ(run.out, "No space left on device\nNo space left on device\nworks\n") << run.err;
}

TEST_P(FirstSteps, ALongLivedSandboxThatIsFullSaysSoAndCanBeEmptied) {
  Box box(GetParam());
  const Run full = box.sh("dd if=/dev/zero of=f bs=1M count=600", {}, {.timeout_seconds = 60});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("is full"));
  EXPECT_EQ(box.sh("rm f; head -c 50M /dev/zero > g && wc -c < g").out, "52428800\n");
  EXPECT_THAT(box.sh("false").err, Not(HasSubstr("full")));
}

}  // namespace
}  // namespace carrel::test
