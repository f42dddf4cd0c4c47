#include "backends/native/doctor_probe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>

#include "backends/native/doctor.h"
#include "backends/native/doctor_cause.h"
#include "backends/native/doctor_settings.h"
#include "base/files.h"
#include "kernel/cgroup.h"
#include "kernel/seccomp.h"
#include "support/patience.h"

namespace carrel::native {
namespace {

using testing::HasSubstr;

constexpr unsigned kNobody = 65534;

// Runs `body` in a process of its own and returns the text that it returns: what it does to its
// identity and its namespaces ends with it.
template <typename Body>
std::string in_child(Body body) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return "no pipe";
  }
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string text = body();
    ::_exit(write_all(write_end.get(), text).ok() ? 0 : 1);
  }
  write_end.reset();
  auto text = read_all(read_end.get());
  ::waitpid(pid, nullptr, 0);
  return text.ok() ? text.value() : text.error().to_string();
}

// As a login does it, which ends in executing a shell: that makes the process dumpable again.
std::string become_nobody() {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
                 ::setresuid(kNobody, kNobody, kNobody) == 0 &&
                 ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
             ? ""
             : "cannot become nobody";
}

// The features that fail, with the reasons; empty when all of them work.
std::string failures_of(const DoctorFacts& facts) {
  std::string text;
  for (unsigned i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    const int outcome = facts.features.of(feature);
    if (outcome == kNotTried) {
      text += std::string(feature_name(feature)) + ": not tried\n";
    } else if (outcome != 0) {
      text += std::string(feature_name(feature)) + ": " + cause_of(feature, facts).why + " -> " +
              cause_of(feature, facts).fix + "\n";
    }
  }
  return text;
}

DoctorFacts try_here() {
  DoctorFacts facts;
  facts.settings = read_kernel_settings();
  facts.around = look_around();
  try_features(facts);
  return facts;
}

// A state directory that is removed again, with the control groups of its installation.
class DoctorProbe : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can try it as root and as an ordinary user";
    }
    std::string pattern = "/tmp/carrel-doctor-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  void TearDown() override {
    if (path_.empty()) {
      return;
    }
    auto label = read_file_at(AT_FDCWD, path_ + "/installation", 64);
    if (label.ok()) {
      kernel::CgroupOptions options;
      options.label = label.value();
      auto layout = kernel::detect_cgroups(options);
      ASSERT_TRUE(layout.ok());
      EXPECT_TRUE(kernel::list_cgroups(layout.value()).empty());
    }
    EXPECT_TRUE(remove_tree_at(AT_FDCWD, path_).ok());
  }

  std::string path_;
};

TEST_F(DoctorProbe, RootHasEverythingHere) {
  const auto begin = std::chrono::steady_clock::now();
  auto home = storage::Home::open_at(path_);
  ASSERT_TRUE(home.ok());
  const DoctorFacts facts = examine_host(home);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patient(std::chrono::seconds(2)));
  EXPECT_EQ(failures_of(facts), "");
  EXPECT_GT(facts.landlock_abi, 0);
  EXPECT_TRUE(facts.sandbox.ran) << facts.sandbox.error;
  EXPECT_EQ(facts.sandbox.exit_code, 0);
  for (const LimitFacts* limit : {&facts.groups.memory, &facts.groups.cpu, &facts.groups.pids}) {
    EXPECT_NE(limit->source, kernel::CgroupSource::kNone) << limit->why_missing;
    EXPECT_TRUE(limit->held);
  }
  EXPECT_TRUE(diagnose(facts).ok);
}

TEST_F(DoctorProbe, AnOrdinaryUserHasEveryNamespaceAndASandboxHere) {
  ASSERT_EQ(::chown(path_.c_str(), kNobody, kNobody), 0);
  const std::string failures = in_child([&]() -> std::string {
    if (std::string failed = become_nobody(); !failed.empty()) {
      return failed;
    }
    auto home = storage::Home::open_at(path_);
    if (!home.ok()) {
      return home.error().to_string();
    }
    DoctorFacts facts = examine_host(home);
    if (!facts.groups.has_v2) {  // nobody gave this user a group
      facts.features.set(Feature::kCloneIntoCgroup, 0);
      facts.features.set(Feature::kCgroupKill, 0);
    }
    const Diagnosis diagnosis = diagnose(facts);
    return failures_of(facts) + (diagnosis.ok ? "" : diagnosis.verdict);
  });
  EXPECT_EQ(failures, "");
}

TEST_F(DoctorProbe, NothingIsMountedAndNothingIsLeft) {
  auto before = read_file_at(AT_FDCWD, "/proc/self/mountinfo");
  ASSERT_TRUE(before.ok());
  {
    auto home = storage::Home::open_at(path_);
    ASSERT_TRUE(home.ok());
    examine_host(home);
  }
  auto after = read_file_at(AT_FDCWD, "/proc/self/mountinfo");
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(before.value(), after.value());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(::rmdir((path_ + "/run/once").c_str()), 0) << "a mark of a sandbox is left";
  EXPECT_EQ(::rmdir((path_ + "/run/ids").c_str()), 0) << "an id of a sandbox is left";
}

TEST_F(DoctorProbe, AnUnusableStateDirectoryIsAFinding) {
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  auto home = storage::Home::open_at(path_);
  ASSERT_FALSE(home.ok());
  const Diagnosis diagnosis = diagnose(examine_host(home));
  EXPECT_FALSE(diagnosis.ok);
  EXPECT_THAT(diagnosis.verdict, HasSubstr("can be written by others"));
}

TEST_F(DoctorProbe, AMaskedProcIsRecognised) {
  const std::string failures = in_child([]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("mask", "/proc/fs", "tmpfs", 0, nullptr) != 0) {
      return "cannot mask";
    }
    return failures_of(try_here());
  });
  EXPECT_THAT(failures, HasSubstr("proc: parts of /proc are masked (/proc/fs)"));
}

TEST_F(DoctorProbe, ALimitOnNamespacesIsRecognised) {
  const std::string failures = in_child([]() -> std::string {
    std::string failed = become_nobody();
    const std::string map = "65534 65534 1";
    if (!failed.empty() || ::unshare(CLONE_NEWUSER) != 0 ||
        !write_value_at(AT_FDCWD, "/proc/self/setgroups", "deny").ok() ||
        !write_value_at(AT_FDCWD, "/proc/self/gid_map", map).ok() ||
        !write_value_at(AT_FDCWD, "/proc/self/uid_map", map).ok() ||
        !write_value_at(AT_FDCWD, "/proc/sys/user/max_net_namespaces", "0").ok()) {
      return "cannot set the limit";
    }
    return failures_of(try_here());
  });
  EXPECT_THAT(failures, HasSubstr("network_namespace: user.max_net_namespaces is 0"));
}

TEST_F(DoctorProbe, AProgramThatItsUserCannotReadIsRecognised) {
  const std::string failures = in_child([]() -> std::string {
    std::string failed = become_nobody();
    if (!failed.empty() || ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
      return "cannot hide the process";
    }
    return failures_of(try_here());
  });
  EXPECT_THAT(failures, HasSubstr("id_map: this process may not be looked at"));
}

// A filter that answers `verdict` to unshare and hides clone3.
std::string fails_under_filter(unsigned verdict) {
  return in_child([&]() -> std::string {
    std::array<sock_filter, 6> filter = {
        sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, verdict),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (kernel::load_seccomp_child(sock_fprog{filter.size(), filter.data()}) != 0) {
      return "cannot load the filter";
    }
    return failures_of(try_here());
  });
}

TEST_F(DoctorProbe, AFilterThatRefusesIsRecognised) {
  const std::string failures = fails_under_filter(SECCOMP_RET_ERRNO | EPERM);
  EXPECT_THAT(failures, HasSubstr("clone3: this process runs under a system call filter that hid"));
  EXPECT_THAT(failures, HasSubstr("user_namespace: this process runs under a system call filter"));
  EXPECT_THAT(failures, testing::Not(HasSubstr("openat2")));
}

TEST_F(DoctorProbe, AFilterThatKillsIsRecognised) {
  EXPECT_THAT(fails_under_filter(SECCOMP_RET_KILL_PROCESS),
              HasSubstr("user_namespace: the process that tried it was killed"));
}

}  // namespace
}  // namespace carrel::native
