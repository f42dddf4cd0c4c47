// Kernels that lack system calls: a filter answers for them, in the program and in its guest. The
// room is the same, or there is none and the missing call is named.
#include <sys/mount.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/fixture.h"

namespace carrel::test {
namespace {

using nlohmann::json;

class OldKernel : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (!IsSkipped()) {
      // Where the ordinary user can execute it.
      wrapper_ = place().work(GetParam()) + "/without";
      std::filesystem::copy_file(CARREL_WITHOUT, wrapper_);
    }
  }

  Run without(const std::string& missing, std::vector<std::string> arguments) const {
    Launch wrapped = launch(std::move(arguments));
    // With descriptors that the program should not have: they must not go any further.
    wrapped.arguments.insert(wrapped.arguments.begin(),
                             {"-c", "exec 7< /etc/passwd 300< /etc/passwd; exec \"$0\" \"$@\"",
                              wrapper_, missing, wrapped.program});
    wrapped.program = "/bin/bash";
    return Process(wrapped).wait(std::chrono::seconds(60));
  }
  Run bash_without(const std::string& missing, const std::string& script) const {
    return without(missing, {"run", "--", "bash", "-c", script});
  }

  // What a sandbox tells about itself on this kernel and on the whole one.
  void expect_same(const std::string& missing, const std::string& script) const {
    const Run expected = bash(script);
    const Run run = bash_without(missing, script);
    EXPECT_EQ(expected.status, 0) << expected.err;
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, expected.out) << script;
  }

  // A one-shot, with every protection that shows from inside.
  void expect_same_room(const std::string& missing) const {
    SCOPED_TRACE(missing);
    // Each mount with its flags; not the options of its file system, which name ids.
    expect_same(missing, "cut -d' ' -f4- /proc/self/mountinfo | sed 's/ - .*//' | sort");
    expect_same(missing, "grep -E '^(Cap|NoNewPrivs|Seccomp:|Sig(Blk|Ign|Cgt))' /proc/self/status");
    expect_same(missing, "ls /proc/self/fd; id; ulimit -a; cat /proc/sys/user/max_user_namespaces");
    const Run tried = bash_without(
        missing,
        "touch /usr/x /etc/x /proc/sys/kernel/hostname 2>/dev/null && echo wrote;"
        "head -c 1 /proc/kcore /proc/keys /proc/kallsyms /proc/cmdline 2>/dev/null | grep -v '==>';"
        "unshare -U true 2>/dev/null && echo nested; ls /proc/1/fd 2>/dev/null;"
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
    EXPECT_EQ(tried.out.substr(tried.out.find_first_not_of('\n')), "lo\n") << tried.err;
  }

  // A long-lived one. Returns what it says is in force.
  json expect_same_box(const std::string& missing) const {
    SCOPED_TRACE(missing);
    end_keepers();
    const Box expected = use_box([this](auto words) { return carrel(words); });
    end_keepers();
    Box box = use_box([&](auto words) { return without(missing, words); });
    EXPECT_EQ(box.told, expected.told);
    return box.info.is_object() ? box.info["enforcement"] : json::array();
  }

  static std::string row_of(const json& enforcement, const std::string& name) {
    for (const json& row : enforcement) {
      if (row["name"] == name) {
        return row["by"];
      }
    }
    return "no such row";
  }

  void expect_limits(const std::string& missing) const {
    if (!as_root()) {
      return;
    }
    SCOPED_TRACE(missing);
    const Run run =
        without(missing, {"run", "--json", "--memory", "64m", "--require", "memory,cpu,pids", "--",
                          "python3", "-c", "x = bytearray(200 << 20)"});
    const json result = json::parse(run.out, nullptr, false);
    ASSERT_TRUE(result.is_object()) << run.out << run.err;
    EXPECT_TRUE(result["oom_killed"]);
  }

  void expect_everything(const std::string& missing) const {
    expect_same_room(missing);
    expect_limits(missing);
    expect_same_box(missing);
  }

  // No room, one line that names the call, and nothing left behind (see the fixture).
  void expect_refusal(const std::string& missing, const std::string& command,
                      const std::string& name) const {
    SCOPED_TRACE(missing);
    std::vector<std::string> words = {command};
    end_keepers();
    if (command == "run") {
      words.insert(words.end(), {"--", "echo", "ran"});
    }
    const Run run = without(missing, words);
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, name));
  }

  // What the doctor says of one thing, and of sandboxes as a whole.
  std::string doctor(const std::string& missing, const std::string& check) const {
    const Run run = without(missing, {"doctor", "--json"});
    const json answer = json::parse(run.out, nullptr, false);
    if (!answer.is_object()) {
      return "no answer: " + run.out + run.err;
    }
    for (const json& one : answer["checks"]) {
      if (one["name"] == check) {
        return one["status"].get<std::string>() + (answer["ok"] ? ", works" : ", does not work");
      }
    }
    return "no such check";
  }

 private:
  struct Box {
    std::string told;
    json info;
  };

  template <typename Start>
  static Box use_box(Start start) {
    Box box;
    auto tell = [&](const std::vector<std::string>& words) {
      const Run run = start(words);
      box.told += std::to_string(run.status) + ": " + run.out + run.err;
    };
    const Run made = start(std::vector<std::string>{"create"});
    EXPECT_EQ(made.status, 0) << made.err;
    const std::string id = made.out.substr(0, made.out.find('\n'));
    expect_no_leak();
    box.told += groups_of_guest(id);
    tell({"sh", id, "cd /tmp; X=1; ls /proc/self/fd; touch /usr/x /workspace/x"});
    tell({"sh", id, "echo $PWD $X; ls /proc/$$/fd; cut -d' ' -f5,6 /proc/self/mountinfo"});
    tell({"exec", id, "--", "ls", "/proc/self/fd", "/workspace"});
    // Without the number of signals that its user's processes have not taken yet.
    tell({"exec", id, "--", "sed", "-nE", "s,^SigQ:.*/,SigQ: /,; /^(Cap|NoNewPrivs|Sig)/p",
          "/proc/self/status"});
    box.info =
        json::parse(start(std::vector<std::string>{"info", "--json", id}).out, nullptr, false);
    EXPECT_TRUE(box.info.is_object());
    EXPECT_EQ(start(std::vector<std::string>{"rm", id}).status, 0);
    return box;
  }

  // The control groups of the first process, without the sandbox's id.
  static std::string groups_of_guest(const std::string& id) {
    for (const HostProcess& process : descendants()) {
      if (status_field(process.pid, "NSpid").ends_with("\t1")) {
        std::string text =
            read_text("/proc/" + std::to_string(process.pid) + "/cgroup").value_or("");
        for (std::size_t at; (at = text.find(id)) != std::string::npos;) {
          text.replace(at, id.size(), "ID");
        }
        return text;
      }
    }
    return "no first process\n";
  }

  // The keeper and the guest have nothing of what the command that started them had.
  static void expect_no_leak() {
    for (const HostProcess& process : descendants()) {
      const std::string directory = "/proc/" + std::to_string(process.pid) + "/fd";
      std::error_code failed;
      for (const auto& entry : std::filesystem::directory_iterator(directory, failed)) {
        std::error_code gone;
        EXPECT_NE(std::filesystem::read_symlink(entry, gone), "/etc/passwd") << process.name;
      }
    }
  }

  // A keeper has the system calls of whoever started it.
 protected:
  static void end_keepers() {
    EXPECT_TRUE(eventually(std::chrono::seconds(5), [] {
      bool none = true;
      for (const HostProcess& process : descendants()) {
        const auto words = read_text("/proc/" + std::to_string(process.pid) + "/cmdline");
        if (words.has_value() && words->find(std::string("\0keeper\0", 8)) != std::string::npos) {
          ::kill(process.pid, SIGKILL);
          none = false;
        }
      }
      return none;
    }));
  }

  std::string wrapper_;
};
CARREL_AS_BOTH(OldKernel);

TEST_P(OldKernel, WithoutClone3) {
  expect_everything("clone3");
  EXPECT_EQ(doctor("clone3", "clone3"), "missing, works");
}

TEST_P(OldKernel, WithoutTheFlagsOfClone3) { expect_everything("clone3_flags"); }

TEST_P(OldKernel, WithoutMountSetattr) {
  expect_everything("mount_setattr");
  EXPECT_EQ(doctor("mount_setattr", "mount_setattr"), "missing, works");
}

TEST_P(OldKernel, WithoutOpenat2) {
  expect_everything("openat2");
  EXPECT_EQ(doctor("openat2", "openat2"), "missing, works");
}

// Then no link is followed at all, not even one to what is allowed.
TEST_P(OldKernel, WithoutOpenat2MountsAreJudgedByPathsWithoutLinks) {
  const std::string work = place().work(GetParam());
  std::filesystem::create_directories(work + "/data/in");
  std::filesystem::create_directory_symlink("in", work + "/data/link");
  const std::string lists = file("lists.toml", "allowed_read_paths = [\"" + work + "/data\"]\n");
  const auto rule_of = [&](const std::string& path) {
    const Run run = without("openat2", {"mount", "check", "--json", "--config", lists, path});
    return json::parse(run.out, nullptr, false).value("rule", run.out + run.err);
  };
  EXPECT_EQ(rule_of("data/in"), "allowed_read_paths");
  EXPECT_EQ(rule_of("data/../data/in"), "allowed_read_paths");
  EXPECT_EQ(rule_of("data/link"), "link");
  EXPECT_EQ(rule_of("data/none"), "missing");
  EXPECT_EQ(rule_of("/proc/self/root/etc"), "forbidden");
}

TEST_P(OldKernel, FoldersOfTheHostAreMountedAndAsReadOnly) {
  const std::string work = place().work(GetParam());
  std::filesystem::create_directories(work + "/data/below");
  file("data/f", "found\n");
  file("data/.env", "secret\n");
  place().give(work + "/data", GetParam());
  const bool below = ::geteuid() == 0;
  if (below) {
    ASSERT_EQ(::mount("tmpfs", (work + "/data/below").c_str(), "tmpfs", 0, "mode=0777"), 0);
    ASSERT_EQ(::mount(nullptr, (work + "/data/below").c_str(), nullptr, MS_SHARED, nullptr), 0);
  }
  const std::string script =
      "cat /data/f /data/.env; touch /data/x /data/below/x 2>&1; "
      "grep ' /data' /proc/self/mountinfo | cut -d' ' -f5,6,7 | sed 's/,idmapped//'";
  const Run expected = bash(script, {"--mount", work + "/data:/data"});
  EXPECT_NE(expected.out.find("'/data/below/x': Read-only"), std::string::npos) << expected.out;
  for (const char* missing : {"mount_setattr", "openat2", "mount_setattr,openat2,close_range"}) {
    const Run run =
        without(missing, {"run", "--mount", work + "/data:/data", "--", "bash", "-c", script});
    EXPECT_EQ(run.out, expected.out) << missing << run.err;
  }
  const Run writable = without(
      "mount_setattr", {"run", "--mount", work + "/data:/data:rw", "--", "touch", "/data/x"});
  if (below) {
    ::umount2((work + "/data/below").c_str(), MNT_DETACH);
  }
  EXPECT_EQ(writable.status, as_root() ? 125 : 0) << writable.err;
  EXPECT_EQ(writable.err.find("Linux 5.12") != std::string::npos, as_root()) << writable.err;
}

TEST_P(OldKernel, WithoutCloseRange) {
  expect_everything("close_range");
  EXPECT_EQ(doctor("close_range", "close_range"), "missing, works");
}

TEST_P(OldKernel, WithoutTheFlagOfCloseRange) { expect_everything("close_range_cloexec"); }

TEST_P(OldKernel, WithoutExecveat) { expect_everything("execveat"); }

TEST_P(OldKernel, WithoutExecutableMemoryFilesAsAFlag) { expect_everything("memfd_exec"); }

TEST_P(OldKernel, WithoutKeyrings) { expect_everything("keyctl"); }

// What each of them lacks, or lacked when it was new.
TEST_P(OldKernel, OfDebian11) {
  expect_everything("mount_setattr,close_range_cloexec,landlock,memfd_exec");
}
TEST_P(OldKernel, OfUbuntu2004) {
  expect_everything(
      "clone3_flags,mount_setattr,openat2,close_range,landlock,memfd_exec,time_namespace");
}

// A mount below a mount of the image keeps the flags that it has and gets those of the sandbox.
TEST_P(OldKernel, WithoutMountSetattrEveryMountOfAnImageIsProtected) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount";
  }
  const std::string image = place().work(GetParam()) + "/image";
  const std::string deep = image + "/data/a b/deep";
  std::filesystem::create_directories(image + "/data/a b");
  for (const char* name : {"usr", "bin", "lib", "lib64"}) {
    const std::string source = std::string("/") + name;
    if (std::filesystem::is_symlink(source)) {
      std::filesystem::copy_symlink(source, image + source);
    } else if (std::filesystem::exists(source)) {
      std::filesystem::create_directories(image + source);
      ASSERT_EQ(::mount(source.c_str(), (image + source).c_str(), nullptr, MS_BIND, nullptr), 0);
    }
  }
  ASSERT_EQ(
      ::mount("tmpfs", (image + "/data/a b").c_str(), "tmpfs", MS_NOEXEC | MS_NOATIME, "size=1m"),
      0);
  std::filesystem::create_directories(deep);
  ASSERT_EQ(::mount("tmpfs", deep.c_str(), "tmpfs", 0, "size=1m,mode=0777"), 0);
  const std::string script =
      "grep ' /data' /proc/self/mountinfo | cut -d' ' -f5,6; touch '/data/a b/deep/x' 2>&1";
  const Run expected = carrel({"run", "--image", "dir:" + image, "--", "bash", "-c", script});
  const Run run =
      without("mount_setattr", {"run", "--image", "dir:" + image, "--", "bash", "-c", script});
  ::umount2(image.c_str(), MNT_DETACH);
  for (const char* name : {"/data/a b/deep", "/data/a b", "/usr", "/bin", "/lib", "/lib64"}) {
    ::umount2((image + name).c_str(), MNT_DETACH);
  }
  EXPECT_EQ(expected.out.substr(0, expected.out.find('\n')), "/data ro,nosuid,nodev,relatime");
  EXPECT_NE(expected.out.find("/data/a\\040b ro,nosuid,nodev,noexec,noatime"), std::string::npos)
      << expected.out << expected.err;
  EXPECT_NE(expected.out.find("/data/a\\040b/deep ro,nosuid,nodev"), std::string::npos);
  EXPECT_EQ(run.out, expected.out) << run.err;
}

TEST_P(OldKernel, WithoutLandlockItIsSaidAndARequirementIsRefused) {
  expect_same_room("landlock");
  expect_limits("landlock");
  const json rows = expect_same_box("landlock");
  EXPECT_EQ(row_of(rows, "landlock"), "none");
  EXPECT_EQ(doctor("landlock", "landlock"), "missing, works");
  const Run run = without("landlock", {"run", "--require", "landlock", "--", "echo", "ran"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "landlock"));
}

TEST_P(OldKernel, WithoutTimeNamespacesItIsSaid) {
  expect_same_room("time_namespace");
  EXPECT_EQ(row_of(expect_same_box("time_namespace"), "clocks"), "none");
  EXPECT_EQ(row_of(expect_same_box("keyctl"), "clocks"), "time namespace");
  EXPECT_EQ(doctor("time_namespace", "time_namespace"), "missing, works");
}

// By its number alone a first process could be mistaken for another: one-shots have their own as a
// child, long-lived sandboxes are refused.
TEST_P(OldKernel, WithoutProcessDescriptorsNothingIsLongLived) {
  for (const std::string call : {"pidfd_open", "pidfd_send_signal"}) {
    expect_same_room(call);
    expect_limits(call);
    expect_refusal(call, "create", call);
    EXPECT_EQ(doctor(call, "pidfd"), "missing, works");
  }
}

// One that was made by a keeper with the call is not given up as ended by a command without it.
TEST_P(OldKernel, WithoutProcessDescriptorsNothingIsForgotten) {
  const std::string id = carrel({"create"}).out.substr(0, 36);
  const Run removed = without("pidfd_open", {"rm", "--force", id});
  EXPECT_EQ(removed.status, 125);
  EXPECT_TRUE(says_one_line(removed, id));
  EXPECT_EQ(carrel({"sh", id, "echo alive"}).out, "alive\n");
}

TEST_P(OldKernel, WithoutTheMountInterfaceThereIsNoSandbox) {
  for (const std::string call : {"fsopen", "fsconfig", "fsmount", "open_tree", "move_mount"}) {
    expect_refusal(call, "run", call + " (Linux 5.2)");
    expect_refusal(call, "create", call + " (Linux 5.2)");
  }
  EXPECT_EQ(doctor("fsopen", "mount_api"), "missing, does not work");
}

TEST_P(OldKernel, WithoutFiltersOrMemoryFilesThereIsNoSandbox) {
  expect_refusal("seccomp", "run", "system call filter");
  expect_refusal("seccomp", "create", "system call filter");
  EXPECT_EQ(doctor("seccomp", "seccomp"), "missing, does not work");
  expect_refusal("memfd_create", "run", "memfd_create");
  expect_refusal("memfd_create", "create", "memfd_create");
  EXPECT_EQ(doctor("memfd_create", "memfd_exec"), "missing, does not work");
}

// Without openat2 a file worker walks by itself, and follows no link at all.
TEST_P(OldKernel, FilesGoInAndOutAndNoLinkIsFollowed) {
  const std::string missing = "openat2,fchmodat2";
  const auto box = [&](std::vector<std::string> words) { return without(missing, words); };
  end_keepers();
  const Run made = box({"create"});
  ASSERT_EQ(made.status, 0) << made.err;
  const std::string id = made.out.substr(0, 36);
  EXPECT_EQ(box({"file", "write", id, "d//e/f", "--text", "text"}).status, 0);
  EXPECT_EQ(box({"file", "read", id, "/workspace/./d/e/f"}).out, "text");
  EXPECT_EQ(box({"file", "chmod", id, "d/e/f", "700"}).status, 0);
  EXPECT_EQ(box({"sh", id, "stat -c %a d/e/f; ln -s d l; ln -s d/e/f k"}).out, "700\n");
  EXPECT_EQ(box({"file", "ls", id, "/"}).status, 0);
  EXPECT_EQ(box({"file", "read", id, "l/e/f"}).status, 125);
  EXPECT_EQ(box({"file", "read", id, "k"}).status, 125);
  EXPECT_EQ(box({"file", "read", id, "/proc/self/root/etc/hostname"}).status, 125);
  EXPECT_EQ(box({"cp", id + ":d", "out"}).status, 0);
  EXPECT_EQ(read_text(place().work(GetParam()) + "/out/e/f").value_or(""), "text");
  EXPECT_EQ(box({"rm", id}).status, 0);
}

// Its own tables have to be read-only (own_memory_test.cc).
TEST_P(OldKernel, ProgramDoesNotRunWithWritableTables) {
  const Run run = without("mprotect", {"version"});
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "cannot make its own tables read-only"));
}

}  // namespace
}  // namespace carrel::test
