#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "kernel/descriptors_child.h"

namespace carrel::kernel {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptors, EachIsVisitedOnceBetweenTheTwo) {
  std::set<unsigned> wanted;
  for (int i = 0; i < 300; ++i) {  // more than one read of the directory
    wanted.insert(static_cast<unsigned>(::fcntl(0, F_DUPFD_CLOEXEC, 400)));
  }
  std::multiset<unsigned> seen;
  EXPECT_EQ(each_descriptor(400, 600, [&](unsigned fd) { seen.insert(fd); }), 0);
  EXPECT_EQ(seen.size(), 201U);
  seen.clear();
  EXPECT_EQ(each_descriptor(400, ~0U,
                            [&](unsigned fd) {
                              seen.insert(fd);
                              raw_call(SYS_close, fd);
                            }),
            0);
  EXPECT_EQ(std::set<unsigned>(seen.begin(), seen.end()), wanted);
  EXPECT_EQ(seen.size(), wanted.size());
}

TEST(Descriptors, OnlyThoseBetweenAreClosed) {
  const int below = ::fcntl(0, F_DUPFD_CLOEXEC, 500);
  const int inside = ::fcntl(0, F_DUPFD_CLOEXEC, below + 1);
  const int above = ::fcntl(0, F_DUPFD_CLOEXEC, inside + 1);
  EXPECT_EQ(close_descriptors(static_cast<unsigned>(below) + 1, static_cast<unsigned>(above) - 1),
            0);
  EXPECT_TRUE(is_open(below));
  EXPECT_FALSE(is_open(inside));
  EXPECT_TRUE(is_open(above));
  ::close(below);
  ::close(above);
}

TEST(Descriptors, AreMarkedToCloseOnExec) {
  const int fd = ::fcntl(0, F_DUPFD, 500);
  EXPECT_EQ(close_on_exec(500, ~0U), 0);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  ::close(fd);
}

}  // namespace
}  // namespace carrel::kernel
