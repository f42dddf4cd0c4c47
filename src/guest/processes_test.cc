#include "guest/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "support/patience.h"

namespace carrel::guest {
namespace {

// What the processes of one TestChild hold on to: when this process lets go, they end.
int leash = -1;

[[noreturn]] void wait_for_the_end(int ready) {
  const char byte = 'r';
  if (::write(ready, &byte, 1) != 1) {
    ::_exit(1);
  }
  char end = 0;
  while (::read(leash, &end, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

// Forks a process that does `work` and then waits to be ended; returns once it waits.
pid_t fork_sleeper(const std::function<void()>& work = [] {}) {
  std::array<int, 2> ready{-1, -1};
  if (::pipe(ready.data()) != 0) {
    std::abort();
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    work();
    wait_for_the_end(ready[1]);
  }
  char byte = 0;
  while (::read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  ::close(ready[0]);
  ::close(ready[1]);
  return pid;
}

// A child of this process that does `work` and then waits to be ended.
class TestChild {
 public:
  explicit TestChild(const std::function<void()>& work = [] {}) {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = fork_sleeper([&] {
      leash = ends[0];
      ::close(ends[1]);
      work();
    });
    ::close(ends[0]);
    held_ = ends[1];
  }
  ~TestChild() {
    ::close(held_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  TestChild(const TestChild&) = delete;
  TestChild& operator=(const TestChild&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int held_ = -1;
};

struct Table {
  std::unique_ptr<ProcessRow[]> rows = std::make_unique<ProcessRow[]>(kMaxProcessRows);
  std::size_t count = list_processes(rows.get(), kMaxProcessRows);

  [[nodiscard]] const ProcessRow* find(pid_t pid) const {
    for (std::size_t i = 0; i < count; ++i) {
      if (rows[i].pid == pid) {
        return &rows[i];
      }
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<pid_t> children_of(pid_t parent) const {
    std::vector<pid_t> children;
    for (std::size_t i = 0; i < count; ++i) {
      if (rows[i].parent == parent) {
        children.push_back(rows[i].pid);
      }
    }
    return children;
  }
};

TEST(Processes, OwnRowIsInTheTable) {
  const Table table;
  const ProcessRow* own = table.find(::getpid());
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->parent, ::getppid());
  EXPECT_EQ(own->start, process_start(::getpid()));
  EXPECT_GT(own->start, 0U);
}

TEST(Processes, NameOfAProcessCannotForgeItsRow) {
  for (const char* name : {"a) R 1 1 1 (b", ")", ") S 1 (", "(((", "x y z\n)"}) {
    const TestChild child([&] { ::prctl(PR_SET_NAME, name); });
    const Table table;
    const ProcessRow* row = table.find(child.pid());
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(row->parent, ::getpid()) << name;
    EXPECT_GE(row->start, process_start(::getpid())) << name;
    EXPECT_LE(row->start, ticks_now()) << name;
  }
}

TEST(Processes, TableIsNeverFilledBeyondItsEnd) {
  std::array<ProcessRow, 2> rows{};
  rows[1].pid = -1;
  EXPECT_EQ(list_processes(rows.data(), 1), 1U);
  EXPECT_EQ(rows[1].pid, -1);
  EXPECT_EQ(list_processes(rows.data(), 0), 0U);
}

TEST(Processes, StartOfAProcessThatIsGoneIsZero) {
  pid_t gone = 0;
  {
    const TestChild child;
    gone = child.pid();
    EXPECT_GT(process_start(gone), 0U);
  }
  EXPECT_EQ(process_start(gone), 0U);
}

TEST(Processes, StoppedIsSeen) {
  const TestChild child;
  EXPECT_FALSE(is_stopped(child.pid()));
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child.pid(), &status, WUNTRACED), child.pid());
  EXPECT_TRUE(is_stopped(child.pid()));
}

TEST(Processes, KilledIsSeenBeforeTheEnd) {
  pid_t gone = 0;
  {
    const TestChild child;
    gone = child.pid();
    EXPECT_FALSE(is_dying(gone));
    ASSERT_EQ(::kill(gone, SIGSTOP), 0);
    EXPECT_FALSE(is_dying(gone));
    ASSERT_EQ(::kill(gone, SIGKILL), 0);
    // Between taking the signal and beginning to end it shows neither, and nobody has reaped it.
    EXPECT_TRUE(test::eventually(std::chrono::seconds(5), [&] { return is_dying(gone); }));
  }
  EXPECT_TRUE(is_dying(gone));
}

// A process as the guest's minder is: it collects every descendant that ends.
void mind(const std::function<void()>& work) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction ignore{};
  ignore.sa_handler = SIG_DFL;
  ignore.sa_flags = SA_NOCLDWAIT;
  ::sigaction(SIGCHLD, &ignore, nullptr);
  work();
}

TEST(EndDescendants, EndsTheWholeTreeAndLeavesItsRoot) {
  const TestChild minder([] {
    mind([] {
      fork_sleeper([] { fork_sleeper([] { fork_sleeper(); }); });
      fork_sleeper([] {
        ::setsid();
        fork_sleeper();
      });
    });
  });
  EXPECT_EQ(Table().children_of(minder.pid()).size(), 2U);
  end_descendants(minder.pid(), 0, 0);
  const Table after;
  EXPECT_TRUE(after.children_of(minder.pid()).empty());
  EXPECT_NE(after.find(minder.pid()), nullptr);
}

TEST(EndDescendants, ReachesOrphans) {
  const TestChild minder([] {
    mind([] {
      const pid_t middle = ::fork();
      if (middle == 0) {
        fork_sleeper();
        ::_exit(0);
      }
      ::waitpid(middle, nullptr, 0);
    });
  });
  EXPECT_EQ(Table().children_of(minder.pid()).size(), 1U);
  end_descendants(minder.pid(), 0, 0);
  EXPECT_TRUE(Table().children_of(minder.pid()).empty());
}

TEST(EndDescendants, LeavesOlderProcessesAlone) {
  const TestChild minder([] { mind([] { fork_sleeper(); }); });
  ::usleep(30'000);
  end_descendants(minder.pid(), 0, ticks_now());
  EXPECT_EQ(Table().children_of(minder.pid()).size(), 1U);
}

TEST(EndDescendants, EndsTheShellThoughItIsOlder) {
  const TestChild minder([] { mind([] { fork_sleeper([] { fork_sleeper(); }); }); });
  const pid_t shell = Table().children_of(minder.pid()).at(0);
  ::usleep(30'000);
  end_descendants(minder.pid(), shell, ticks_now());
  const Table after;
  EXPECT_EQ(after.find(shell), nullptr);
  // What the shell had started before goes on, as a child of the minder.
  EXPECT_EQ(after.children_of(minder.pid()).size(), 1U);
}

TEST(EndDescendants, LeavesTheRestOfTheMachineAlone) {
  const TestChild minder([] { mind([] { fork_sleeper(); }); });
  const TestChild other([] { mind([] { fork_sleeper(); }); });
  end_descendants(minder.pid(), 0, 0);
  const Table after;
  EXPECT_TRUE(after.children_of(minder.pid()).empty());
  EXPECT_EQ(after.children_of(other.pid()).size(), 1U);
}

TEST(FindChild, FindsAChildOfEitherAndNotTheFirstItself) {
  const TestChild minder([] { mind([] { fork_sleeper(); }); });
  const pid_t shell = Table().children_of(minder.pid()).at(0);
  EXPECT_EQ(find_child(shell, minder.pid()), 0);
  EXPECT_EQ(find_child(minder.pid(), shell), shell);
  const TestChild other([] { mind([] { fork_sleeper([] { fork_sleeper(); }); }); });
  const pid_t parent = Table().children_of(other.pid()).at(0);
  EXPECT_EQ(find_child(parent, other.pid()), Table().children_of(parent).at(0));
}

TEST(FindChild, OneThatHasEndedIsNone) {
  const TestChild parent([] {
    if (::fork() == 0) {
      ::_exit(0);
    }
    ::usleep(50'000);  // it is not reaped
  });
  EXPECT_EQ(find_child(parent.pid(), 0), 0);
}

TEST(AnyBetween, TakesTheLastAndNotTheFirst) {
  const TestChild child;
  const auto pid = static_cast<std::uint64_t>(child.pid());
  EXPECT_TRUE(exists(child.pid()));
  EXPECT_TRUE(any_between(pid - 1, pid));
  EXPECT_FALSE(any_between(pid, pid));
}

TEST(NewestProcess, IsTheLastThatWasStarted) {
  const int loadavg = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(loadavg, 0);
  const std::uint64_t before = newest_process(loadavg);
  const TestChild child;
  EXPECT_NE(before, 0U);
  EXPECT_NE(newest_process(loadavg), before);
  ::close(loadavg);
  EXPECT_EQ(newest_process(-1), 0U);
}

}  // namespace
}  // namespace carrel::guest
