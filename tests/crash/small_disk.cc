#include "small_disk.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>

#include "remains.h"

namespace carrel::test {

namespace {

constexpr std::size_t kPiece = 4096;

}  // namespace

void SmallDisk::SetUp() {
  CarrelTest::SetUp();
  if (IsSkipped()) {
    return;
  }
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount a small file system";
  }
  home_ = place().home(GetParam());
  ASSERT_EQ(::mount("small", home_.c_str(), "tmpfs", 0, "size=2m,mode=700"), 0);
  place().give(home_, GetParam());
}

void SmallDisk::TearDown() {
  if (!home_.empty()) {
    empty();
    EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
    kill_keepers();
    EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
    EXPECT_EQ(::umount2(home_.c_str(), MNT_DETACH), 0);
  }
  CarrelTest::TearDown();
}

void SmallDisk::fill(std::size_t leave) const {
  int fd = ::open((home_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const std::string piece(kPiece, 'x');
  off_t size = 0;
  while (::write(fd, piece.data(), piece.size()) > 0) {
    size += static_cast<off_t>(kPiece);
  }
  EXPECT_EQ(::ftruncate(fd, std::max<off_t>(size - static_cast<off_t>(leave), 0)), 0);
  ::close(fd);
}

void SmallDisk::empty() const { ::unlink((home_ + "/filler").c_str()); }

testing::AssertionResult says_that_it_is_full(const Run& run) {
  if (testing::AssertionResult one = says_one_line(run, ""); !one) {
    return one;
  }
  const bool full = run.err.find("full") != std::string::npos ||
                    run.err.find("No space left") != std::string::npos;
  return full ? testing::AssertionSuccess()
              : testing::AssertionFailure() << "it is not about the disk: " << run.err;
}

}  // namespace carrel::test
