// Ordinary work succeeds in the default sandbox: not too restrictive.
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

class GoldenTasks : public CarrelTest {
 protected:
  // The task in the long-lived shell of a fresh default sandbox, and as a one-shot.
  void expect_both(const std::string& script, const std::string& out) const {
    Run once = bash("set -e\n" + script);
    EXPECT_EQ(once.status, 0) << once.err;
    EXPECT_EQ(once.out, out) << once.err;
    Box box(GetParam());
    Run shell = box.sh("(set -e\n" + script + ")", {}, {.timeout_seconds = 60});
    EXPECT_EQ(shell.status, 0) << shell.err;
    EXPECT_EQ(shell.out, out) << shell.err;
  }
};
CARREL_AS_BOTH(GoldenTasks);

// R276
TEST_P(GoldenTasks, GitKeepsAHistory) {
  expect_both(
      "git init -q repo; cd repo\n"
      "git config user.email agent@example.com; git config user.name agent\n"
      "echo one > f; git add f; git commit -qm first\n"
      "echo two >> f; git commit -qam second\n"
      "git checkout -qb side HEAD~1; echo side > g; git add g; git commit -qm side\n"
      "git checkout -q -; git merge -q --no-edit side\n"
      "git clone -q . ../copy; cd ../copy\n"
      "git log --format=%s | sort | head -3; cat f g\n",
      "Merge branch 'side'\nfirst\nsecond\none\ntwo\nside\n");
}

// R276
TEST_P(GoldenTasks, CppCompilesAndRuns) {
  if (::access("/usr/bin/g++", X_OK) != 0) {
    GTEST_SKIP() << "this host has no g++";
  }
  expect_both(
      "cat > hello.cc <<'EOF'\n"
      "#include <iostream>\n"
      "#include <thread>\n"
      "int main() { int x = 0; std::thread t([&] { x = 42; }); t.join(); std::cout << x << '\\n'; "
      "}\n"
      "EOF\n"
      "g++ -O1 -pthread hello.cc -o hello && ./hello\n",
      "42\n");
}

// R276
TEST_P(GoldenTasks, PythonTestsRun) {
  const bool pytest = std::filesystem::exists("/usr/lib/python3/dist-packages/pytest");
  const std::string tests =
      "cat > test_sum.py <<'EOF'\n"
      "import unittest\n"
      "class T(unittest.TestCase):\n"
      "  def test_sum(self): self.assertEqual(sum([1, 2]), 3)\n"
      "  def test_tmp(self):\n"
      "    import tempfile\n"
      "    with tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').close()\n"
      "EOF\n";
  if (pytest) {
    expect_both(tests + "python3 -m pytest -q test_sum.py 2>&1 | tail -1 | cut -d' ' -f1-2\n",
                "2 passed\n");
  } else {
    expect_both(tests + "python3 -m unittest -q test_sum 2>&1 | tail -1\n", "OK\n");
  }
}

// R276
TEST_P(GoldenTasks, TarMakesTheRoundTrip) {
  expect_both(
      "mkdir -p tree/sub; echo one > tree/a; ln -s a tree/link; ln tree/a tree/hard\n"
      "printf 'x\\0y' > 'tree/sub/odd name'; chmod 750 tree/sub; touch -d 2001-02-03 tree/a\n"
      "tar -czf tree.tar.gz tree; mkdir out; tar -xzf tree.tar.gz -C out\n"
      "diff -r tree out/tree && find out/tree/sub out/tree/a -prune -printf '%m %n '\n"
      "readlink out/tree/link; find out/tree/a -printf '%TY-%Tm-%Td\\n'\n",
      "750 2 644 2 a\n2001-02-03\n");
}

// R276
TEST_P(GoldenTasks, PipInstallsFromALocalIndex) {
  if (!std::filesystem::exists("/usr/lib/python3/dist-packages/pip")) {
    GTEST_SKIP() << "this host has no python3-pip";
  }
  const std::string script =
      "set -e; mkdir index\n"
      "python3 - <<'EOF'\n"
      "import zipfile\n"
      "with zipfile.ZipFile('index/tiny-1.0-py3-none-any.whl', 'w') as z:\n"
      "  z.writestr('tiny.py', 'answer = 42\\n')\n"
      "  z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: "
      "1.0\\n')\n"
      "  z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: "
      "t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
      "  z.writestr('tiny-1.0.dist-info/RECORD', "
      "'tiny.py,,\\ntiny-1.0.dist-info/METADATA,,\\ntiny-1.0.dist-info/"
      "WHEEL,,\\ntiny-1.0.dist-info/RECORD,,\\n')\n"
      "EOF\n"
      "python3 -m pip install -q --no-index --find-links index --target lib tiny\n"
      "PYTHONPATH=lib python3 -c 'import tiny; print(tiny.answer)'\n"
      "python3 -m venv --without-pip env\n"
      "env/bin/python -c 'import sys; print(sys.prefix)'\n";
  Run run = carrel({"run", "--", "bash", "-c", script});
  EXPECT_EQ(run.out, "42\n/workspace/env\n") << run.err;
  EXPECT_EQ(run.status, 0);
}

// R276: the usual tools look at /proc and the clock
TEST_P(GoldenTasks, EverydayToolsWork) {
  expect_both(
      "seq 100 | sort -rn | head -1; date +%Y | grep -c ^20; nproc > /dev/null; df / > /dev/null\n"
      "python3 -c 'import os, multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'\n"
      "find /usr/bin -name env; echo hi | sed s/hi/ho/ | awk '{print $1}' | xargs echo\n"
      "mkfifo p; (echo through > p &) ; cat p; flock lock true && echo locked\n",
      "100\n1\n[1, 2]\n/usr/bin/env\nho\nthrough\nlocked\n");
}

// R291
TEST_P(GoldenTasks, StepsOfTheFirstVerificationPass) {
  EXPECT_EQ(python("print(42)").out, "42\n");
  EXPECT_NE(
      python("import urllib.request\nurllib.request.urlopen('http://1.1.1.1', timeout=3)").status,
      0);
  Run killed = python("x = bytearray(700 << 20)");
  EXPECT_EQ(killed.status, 137) << killed.err;
  EXPECT_TRUE(says_one_line(killed, "out of memory"));
}

// A directory with bash, Python and what they are linked to: the packages of a real image are not
// the point. False where the host has other versions of them.
bool make_image(const std::string& image) {
  namespace fs = std::filesystem;
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/bin", "/etc", "/usr/lib/python3.11"}) {
    fs::create_directories(image + path);
  }
  for (const char* name : {"bin", "lib", "lib64"}) {
    fs::create_symlink(std::string("usr/") + name, image + "/" + name);
  }
  for (const char* path :
       {"/usr/bin/bash", "/usr/bin/python3.11", "/usr/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libtinfo.so.6",
        "/usr/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib/x86_64-linux-gnu/libz.so.1",
        "/usr/lib/x86_64-linux-gnu/libexpat.so.1"}) {
    if (!fs::exists(path)) {
      return false;
    }
    fs::copy_file(path, image + path);
  }
  fs::create_symlink("python3.11", image + "/usr/bin/python3");
  for (const auto& entry : fs::directory_iterator("/usr/lib/python3.11")) {
    const std::string name = entry.path().filename();
    if (entry.is_regular_file() || name == "encodings" || name == "collections" ||
        name == "importlib" || name == "re" || name == "lib-dynload") {
      fs::copy(entry.path(), image + "/usr/lib/python3.11/" + name,
               fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }
  }
  write_text(image + "/etc/only-in-the-image", "yes\n");
  return true;
}

std::size_t count_files(const std::string& path) {
  const auto all = std::filesystem::recursive_directory_iterator(path);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// R68: the user, the home and the work folder are made, and the image stays as it is
TEST_P(GoldenTasks, ImageOfADirectoryRuns) {
  const std::string image = place().work(GetParam()) + "/image";
  if (!make_image(image)) {
    GTEST_SKIP() << "this host has no Python 3.11 of Debian's";
  }
  for (const char* name :
       {"passwd", "group", "hosts", "hostname", "resolv.conf", "machine-id", "nsswitch.conf"}) {
    write_text(image + "/etc/" + name, "");
  }
  const std::size_t before = count_files(image);
  Run run = carrel({"code", "--image", "dir:" + image, "-"},
                   {.input = "import os\n"
                             "print(os.getuid() != 0, os.getcwd(), os.environ['HOME'])\n"
                             "open(os.path.expanduser('~/x'), 'w').close()\n"
                             "print(open('/etc/only-in-the-image').read(), end='')\n"
                             "print(os.path.exists('/usr/bin/env'))\n"});
  EXPECT_EQ(run.out, "True /workspace /home/agent\nyes\nFalse\n") << run.err;
  const std::string option = "dir:" + image;
  Run shell = carrel({"run", "--image", option, "--", "bash", "-c", "echo $BASH; cd ~; pwd"});
  EXPECT_EQ(shell.out, "/usr/bin/bash\n/home/agent\n") << shell.err;
  EXPECT_EQ(carrel({"run", "--image", option, "--", "env"}).status, 127);
  EXPECT_EQ(count_files(image), before);
}

// R68: an image from a registry has no /etc/hosts or /etc/resolv.conf of its own
TEST_P(GoldenTasks, ImageWithoutTheFilesThatAreMadeForItRuns) {
  for (const As owner : {As::kRoot, GetParam()}) {
    const std::string image = place().work(GetParam()) + "/image-of-" + name_of(owner);
    if (!make_image(image)) {
      GTEST_SKIP() << "this host has no Python 3.11 of Debian's";
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(image)) {
      place().give(entry.path(), owner);
    }
    place().give(image, owner);
    const std::size_t before = count_files(image);
    Run run = carrel({"run", "--image", "dir:" + image, "--", "bash", "-c",
                      "read -r line < /etc/hosts; echo $line"});
    EXPECT_EQ(run.out, "127.0.0.1 localhost sandbox\n") << name_of(owner) << ": " << run.err;
    EXPECT_EQ(count_files(image), before);
    if (as_root()) {
      break;
    }
  }
}

}  // namespace
}  // namespace carrel::test
