// Host folders and files in sandboxes: how they appear, and what stays hidden.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/nursery.h"

namespace carrel::test {
namespace {

using nlohmann::json;

class Mounting : public CarrelTest {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const {
    return place().work(GetParam()) + "/" + name;
  }
  // A folder of the working directory, of the user of this instance; its absolute path.
  [[nodiscard]] std::string folder(const std::string& name, mode_t mode = 0755) const {
    EXPECT_EQ(::mkdir(path(name).c_str(), 0755), 0) << name;
    EXPECT_EQ(::chmod(path(name).c_str(), mode), 0) << name;
    place().give(path(name), GetParam());
    return path(name);
  }
  [[nodiscard]] uid_t owner(const std::string& file) const {
    struct stat info{};
    EXPECT_EQ(::lstat(file.c_str(), &info), 0) << file;
    return info.st_uid;
  }
  [[nodiscard]] bool exists(const std::string& file) const {
    return ::access(file.c_str(), F_OK) == 0;
  }
  [[nodiscard]] uid_t user() const { return as_root() ? 0 : Place::user_id(); }
};
CARREL_AS_BOTH(Mounting);

// R116
TEST_P(Mounting, NoHostFolderIsInsideUnlessItWasAskedFor) {
  const Run run = bash("cut -d' ' -f4 /proc/self/mountinfo");
  EXPECT_EQ(run.out.find(place().work(GetParam())), std::string::npos) << run.out;
}

// R59, R117
TEST_P(Mounting, AFolderCanBeReadAndNotWritten) {
  const std::string data = folder("data", 0700);
  file("data/made-on-host", "hello\n");
  const Run run = bash(
      "cat /data/made-on-host; touch /data/new; echo more >> /data/made-on-host; "
      "rm -f /data/made-on-host; chmod 777 /data",
      {"--mount", data + ":/data"});
  EXPECT_EQ(run.out, "hello\n");
  for (std::size_t at = 0, i = 0; i < 4; ++i, ++at) {
    at = run.err.find("Read-only file system", at);
    EXPECT_NE(at, std::string::npos) << run.err;
  }
  EXPECT_EQ(read_text(data + "/made-on-host"), "hello\n");
  EXPECT_FALSE(exists(data + "/new"));
}

// R118
TEST_P(Mounting, WhatIsWrittenToAWritableFolderIsOnTheHostAndItsOwners) {
  const std::string data = folder("data", 0700);
  file("data/old", "old\n");
  place().give(data + "/old", GetParam());
  const Run run = bash("echo new > /data/new && mkdir /data/sub && echo more >> /data/old",
                       {"--mount", data + ":/data:rw"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_text(data + "/new"), "new\n");
  EXPECT_EQ(read_text(data + "/old"), "old\nmore\n");
  EXPECT_EQ(owner(data + "/new"), user());
  EXPECT_EQ(owner(data + "/sub"), user());
}

// Root's sandboxes, too.
TEST_P(Mounting, ASandboxIsTheOwnerOfAUsersFolderThere) {
  const std::string data = folder("data", 0700);
  place().give(data, As::kUser);
  const Run run =
      bash("echo new > /data/new; find /data/new -printf '%u\\n'", {"--mount", data + ":/data:rw"});
  EXPECT_EQ(run.out, "agent\n") << run.err;
  EXPECT_EQ(owner(data + "/new"), Place::user_id());
}

TEST_P(Mounting, AFileCanBeMountedByItself) {
  const std::string one = file("one", "1\n");
  const std::string two = file("two", "2\n");
  place().give(one, GetParam());
  place().give(two, GetParam());
  const Run run = bash("cat /in/one; echo x > /in/one; echo changed > /workspace/two",
                       {"--mount", one + ":/in/one", "--mount", two + ":/workspace/two:rw"});
  EXPECT_EQ(run.out, "1\n");
  EXPECT_NE(run.err.find("Read-only file system"), std::string::npos) << run.err;
  EXPECT_EQ(read_text(one), "1\n");
  EXPECT_EQ(read_text(two), "changed\n");
}

// R60, R130
TEST_P(Mounting, ARefusedMountMeansThatNothingRunsAndNothingIsCreated) {
  const std::string good = folder("good");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "--mount", good + ":/good", "--mount", "/etc:/data", "--",
                                 "echo", "ran"},
        {"create", "--mount", good + ":/good", "--mount", "/etc:/data"},
        {"code", "--mount", good + ":/good", "--mount", "/etc:/data", "-"}}) {
    const Run run = carrel(words, {.input = "print('ran')"});
    EXPECT_EQ(run.status, 125) << words[0];
    EXPECT_TRUE(says_one_line(run, "mount '/etc' refused by rule above_forbidden")) << words[0];
  }
  EXPECT_FALSE(exists(place().home(GetParam()) + "/installation")) << "something was made";
  EXPECT_EQ(bash("echo ran", {"--mount", path("none") + ":/data"}).status, 125);
  EXPECT_FALSE(exists(path("none"))) << "R129";
}

// R119, R120
TEST_P(Mounting, ListsDecideAboutSandboxesToo) {
  const std::string data = folder("data");
  const std::string out = folder("out");
  (void)folder("conf");
  const std::string lists =
      file("conf/lists.toml",
           "allowed_read_paths = [\"" + data + "\"]\nallowed_write_paths = [\"" + out + "\"]\n");
  const std::vector<std::string> config = {"--config", lists};
  const auto status = [&](const std::string& mount) {
    return bash("true", {"--config", lists, "--mount", mount}).status;
  };
  EXPECT_EQ(status(data + ":/data"), 0);
  EXPECT_EQ(status(data + ":/data:rw"), 125);
  EXPECT_EQ(status(out + ":/data:rw"), 0);
  EXPECT_EQ(status(folder("data2") + ":/data"), 125);
  EXPECT_EQ(status(path("conf") + ":/data"), 125);
}

// R133
TEST_P(Mounting, AConfigurationNamesMountsAndOnlyTheBooleanFalseMakesThemWritable) {
  const std::string data = folder("data");
  (void)folder("conf");
  const auto run_with = [&](const std::string& readonly) {
    const std::string text =
        "[[mounts]]\nsource = \"" + data + "\"\ntarget = \"/data\"\n" + readonly;
    return bash("touch /data/x 2>&1 && rm /data/x && echo written",
                {"--config", file("conf/c.toml", text)});
  };
  EXPECT_EQ(run_with("readonly = false\n").out, "written\n");
  for (const char* text : {"", "readonly = true\n"}) {
    const Run run = run_with(text);
    EXPECT_NE(run.out.find("Read-only file system"), std::string::npos)
        << text << run.out << run.err;
  }
  for (const char* text :
       {"readonly = \"false\"\n", "readonly = 0\n", "readonly = []\n", "read_only = false\n"}) {
    const Run run = run_with(text);
    EXPECT_EQ(run.status, 125) << text;
    EXPECT_TRUE(says_one_line(run, "mounts")) << text;
  }
}

TEST_P(Mounting, AProjectsOwnFileMountsNothing) {
  const std::string data = folder("data");
  file("carrel.toml", "mounts = [\"" + data + ":/data\"]\n");
  const Run run = bash("echo ran");
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "cannot widen 'mount'"));
  file("carrel.toml", "allowed_read_paths = []\n");
  EXPECT_EQ(bash("echo ran", {"--mount", data + ":/data"}).status, 125);
}

// R124
TEST_P(Mounting, CredentialsInAFolderAreEmptyInsideAndThatIsSaid) {
  const std::string proj = folder("proj");
  (void)folder("proj/sub");
  (void)folder("proj/sub/.ssh");
  file("proj/.env", "KEY=secret-1\n");
  file("proj/sub/.ssh/id_rsa", "secret-2\n");
  file("proj/main.py", "main\n");
  const std::string look =
      "cat /proj/main.py /proj/.env; ls -A /proj/sub/.ssh; cat /proj/sub/.ssh/id_rsa; "
      "echo x > /proj/.env; mv /proj/.env /proj/e; rm -rf /proj/sub/.ssh; "
      "ln /proj/.env /proj/e; grep -r secret /proj";
  for (const std::string mode : {":ro", ":rw"}) {
    const Run run = bash(look, {"--mount", proj + ":/proj" + mode});
    EXPECT_EQ(run.out, "main\n") << mode;
    const std::string said =
        "carrel: mount /proj: hidden in it: .env (a name that credentials have)";
    EXPECT_EQ(run.err.find(said), 0U) << run.err;
    EXPECT_EQ(run.err.find(said, 1), std::string::npos) << "twice";
    EXPECT_NE(run.err.find("sub/.ssh"), std::string::npos) << run.err;
  }
  EXPECT_EQ(read_text(proj + "/.env"), "KEY=secret-1\n");
  EXPECT_EQ(read_text(proj + "/sub/.ssh/id_rsa"), "secret-2\n");
  const Run quiet = carrel({"run", "--json", "--mount", proj + ":/proj", "--", "true"});
  EXPECT_EQ(quiet.err, "");
}

// R127
TEST_P(Mounting, ASocketInAFolderIsHidden) {
  const std::string data = folder("data");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = data + "/door";
  ASSERT_LT(name.size(), sizeof address.sun_path);
  name.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::chmod(name.c_str(), 0777);
  const Run run = python(
      "import socket\ns = socket.socket(socket.AF_UNIX)\ntry:\n  s.connect('/data/door')\n"
      "  print('connected')\nexcept OSError as e:\n  print(e.strerror)\n",
      {"--mount", data + ":/data"});
  EXPECT_EQ(run.out, "Permission denied\n") << run.err;
  ::close(listener);
}

// R127
TEST_P(Mounting, MountsHaveNoDevicesAndNoSetIdPrograms) {
  const std::string data = folder("data");
  for (const std::string mode : {":ro", ":rw"}) {
    const Run run = bash("grep ' /data ' /proc/self/mountinfo | cut -d' ' -f6",
                         {"--mount", data + ":/data" + mode});
    EXPECT_EQ(run.out.substr(0, 16), mode.substr(1) + ",nosuid,nodev,") << run.out;
  }
  if (::geteuid() == 0) {
    ASSERT_EQ(::mknod((data + "/null").c_str(), S_IFCHR | 0666, makedev(1, 3)), 0);
    const Run run = bash("echo x > /data/null", {"--mount", data + ":/data:rw"});
    EXPECT_NE(run.status, 0) << run.err;
  }
}

// R128
TEST_P(Mounting, ReadOnlyCountsForWhatIsMountedBelow) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount";
  }
  const std::string data = folder("data");
  const std::string below = folder("data/below");
  ASSERT_EQ(::mount("none", below.c_str(), "tmpfs", 0, "size=1m,mode=0777"), 0);
  ASSERT_EQ(::chmod(below.c_str(), 0777), 0);
  file("data/below/file", "below\n");
  const Run run =
      bash("cat /data/below/file; touch /data/below/new /data/new", {"--mount", data + ":/data"});
  const Run writable = bash("touch /data/below/new && echo new", {"--mount", data + ":/data:rw"});
  ::umount2(below.c_str(), MNT_DETACH);
  EXPECT_EQ(run.out, "below\n") << run.err;
  EXPECT_NE(run.err.find("'/data/below/new': Read-only file system"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("'/data/new': Read-only file system"), std::string::npos) << run.err;
  EXPECT_EQ(writable.out, "new\n") << writable.err;
}

// R131
TEST_P(Mounting, BadTargetsAreRefused) {
  const std::string data = folder("data");
  for (const std::string target : {"/",
                                   "/proc",
                                   "/proc/x",
                                   "/sys",
                                   "/dev",
                                   "/dev/shm",
                                   "/etc",
                                   "/etc/hosts",
                                   "/usr",
                                   "/bin",
                                   "/lib",
                                   "/run",
                                   "/var/run",
                                   "/var/tmp/x",
                                   "/workspace/code",
                                   "/workspace/code/x",
                                   "/home",
                                   "data",
                                   "",
                                   "/data/../etc",
                                   "/data/.",
                                   "/data/",
                                   "//data",
                                   "/da\nta",
                                   "/var"}) {
    const Run run = bash("echo ran", {"--mount", data + ":" + target});
    EXPECT_EQ(run.status, 125) << target;
    EXPECT_TRUE(says_one_line(run, "mount")) << target;
  }
  for (const std::string other : {"/data", "/data/x", "/data/x/y"}) {
    const Run run = bash("echo ran", {"--mount", data + ":/data", "--mount", data + ":" + other});
    EXPECT_EQ(run.status, 125) << other;
  }
  const Run code = python("print(1)", {"--mount", data + ":/workspace"});
  EXPECT_EQ(code.status, 125) << code.out;
  EXPECT_TRUE(says_one_line(code, "/workspace/code"));
}

TEST_P(Mounting, TargetsAreMadeWhereTheyAreMissing) {
  const std::string data = folder("data");
  file("data/f", "found\n");
  for (const std::string target :
       {"/data", "/srv/a/b/c", "/opt/x", "/mnt", "/workspace/x/y", "/workspace", "/tmp/x",
        "/home/agent/x", "/home/agent", "/root/x", "/var/lib/x"}) {
    const Run run = bash("cat " + target +
                             "/f; ls /proc/kallsyms /dev/null > /dev/null && "
                             "cat /proc/kallsyms; touch /newfile 2>/dev/null && echo open",
                         {"--mount", data + ":" + target});
    EXPECT_EQ(run.out, "found\n") << target << " " << run.err;
    const Run writable =
        bash("cat " + target + "/f", {"--writable-root", "--mount", data + ":" + target});
    EXPECT_EQ(writable.out, "found\n") << target << " " << writable.err;
  }
  EXPECT_EQ(read_text(data + "/f"), "found\n");
  EXPECT_FALSE(exists(data + "/code"));
}

TEST_P(Mounting, InAnImageATargetIsMadeUnlessItsFolderIsTheImages) {
  const std::string data = folder("data");
  file("data/f", "found\n");
  const std::string image = folder("image");
  for (const char* name : {"image/usr", "image/opt", "image/opt/there"}) {
    (void)folder(name);
  }
  file("image/opt/there/f", "the image's\n");
  // There is no program in it; to get as far as to miss one takes all the mounts.
  const auto run_at = [&](const std::string& target, std::vector<std::string> options = {}) {
    options.insert(options.begin(),
                   {"run", "--image", "dir:" + image, "--mount", data + ":" + target});
    options.insert(options.end(), {"--", "none"});
    return carrel(options);
  };
  for (const char* target : {"/data", "/opt/there", "/mnt/x", "/srv", "/opt"}) {
    EXPECT_EQ(run_at(target).status, 127) << target << run_at(target).err;
  }
  EXPECT_EQ(run_at("/opt/new").status, 125);
  EXPECT_TRUE(says_one_line(run_at("/opt/new"), "mount at '/opt/new': the image has '/opt'"));
  EXPECT_EQ(run_at("/opt/new", {"--writable-root"}).status, 127);
  // A link of the image's does not lead a mount elsewhere.
  ASSERT_EQ(::symlink("etc", (image + "/link").c_str()), 0);
  for (const char* target : {"/link", "/link/x"}) {
    EXPECT_EQ(run_at(target).status, 125) << target;
  }
}

// R132
TEST_P(Mounting, NamesAreData) {
  for (const std::string name : {"a:b,ro", "a b", "-v", "a\nb", "$(id)", "a:rw", "\\040"}) {
    const std::string data = folder(name);
    file(name + "/f", name + "\n");
    const Run run = bash("cat /data/f; touch /data/x", {"--mount", data + ":/data"});
    EXPECT_EQ(run.out, name + "\n") << run.err;
    EXPECT_NE(run.err.find("Read-only file system"), std::string::npos) << run.err;
  }
}

TEST_P(Mounting, CodeSeesMounts) {
  const std::string data = folder("data");
  file("data/f", "found\n");
  EXPECT_EQ(
      python("print(open('/workspace/in/f').read(), end='')", {"--mount", data + ":/workspace/in"})
          .out,
      "found\n");
}

TEST_P(Mounting, ALongLivedSandboxHasItsMountsAndTellsOfThem) {
  const std::string data = folder("data");
  file("data/.env", "secret\n");
  const Box box(GetParam(), {"--mount", data + ":/data:rw"});
  EXPECT_EQ(box.sh("echo new > /data/new; cat /data/.env").out, "");
  EXPECT_EQ(read_text(data + "/new"), "new\n");
  EXPECT_EQ(owner(data + "/new"), user());
  EXPECT_EQ(box.exec({"cat", "/data/new"}).out, "new\n");
  EXPECT_NE(box.sh("chmod u+s /data/new").status, 0) << "a set-id file would stay on the host";
  const json info = box.info();
  EXPECT_EQ(info["settings"]["mount"], data + ":/data:rw");
  bool told = false;
  for (const json& row : info["enforcement"]) {
    if (row["name"] == "mount /data") {
      told = true;
      EXPECT_EQ(row["by"], "read-write");
      EXPECT_NE(row["note"].get<std::string>().find("hidden in it: .env"), std::string::npos);
    }
  }
  EXPECT_TRUE(told) << info.dump();
  const Run text = carrel({"info", box.id()});
  EXPECT_NE(text.out.find("hidden in it: .env"), std::string::npos) << text.out;
  // The host's folder can be taken away, and what is inside stays what it was.
  ASSERT_EQ(::rename(data.c_str(), path("moved").c_str()), 0);
  EXPECT_EQ(box.sh("cat /data/new").out, "new\n");
}

TEST_P(Mounting, AKeepersNurseryLendsNothingToThem) {
  const std::string data = folder("data");
  file("data/f", "found\n");
  const Box box(GetParam());
  (void)wait_for_nursery(GetParam());
  EXPECT_EQ(bash("cat /data/f", {"--mount", data + ":/data"}).out, "found\n");
  EXPECT_EQ(bash("ls -d /data").status, 2) << "it stayed for the next one";
}

TEST_P(Mounting, NoDescriptorOfTheHostsFolderIsOpenInside) {
  const std::string data = folder("data");
  const Run run = bash("for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null; done | grep /",
                       {"--mount", data + ":/data:rw"});
  EXPECT_EQ(run.out.find("work"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace carrel::test
