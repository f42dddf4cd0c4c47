#include "backends/microvm/drive.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "backends/microvm/jail.h"

namespace carrel::microvm {
namespace {

constexpr std::uint64_t kPage = 4096;

class Letters final : public Blocks {
 public:
  [[nodiscard]] std::uint64_t size() const override { return 300 * kPage; }
  bool read(std::uint64_t offset, std::span<char> out) override {
    if (offset % 4096 != 0 || out.size() % 4096 != 0 || offset + out.size() > size()) {
      return false;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = at(offset + i);
    }
    return offset != 290 * kPage;
  }
  static char at(std::uint64_t offset) {
    return static_cast<char>('a' + (offset / 4096 + offset % 7) % 26);
  }
  static std::string between(std::uint64_t from, std::uint64_t to) {
    std::string text;
    for (; from < to; ++from) {
      text.push_back(at(from));
    }
    return text;
  }
};

template <typename Body>
FuseReply ask(std::uint32_t opcode, const Body& body, std::uint64_t node = FUSE_ROOT_ID) {
  FuseReply reply;
  Letters letters;
  answer_drive({opcode, 7, node, {reinterpret_cast<const char*>(&body), sizeof body}}, letters,
               reply);
  return reply;
}

fuse_read_in reading(std::uint64_t offset, std::uint32_t size) {
  fuse_read_in read{};
  read.offset = offset;
  read.size = size;
  return read;
}

TEST(DriveTest, ReadsWhatIsThereAtAnyOffset) {
  EXPECT_EQ(ask(FUSE_READ, reading(0, 4096)).bytes(), Letters::between(0, 4096));
  EXPECT_EQ(ask(FUSE_READ, reading(1024, 64)).bytes(), Letters::between(1024, 1088));
  EXPECT_EQ(ask(FUSE_READ, reading(4095, 2)).bytes(), Letters::between(4095, 4097));
  EXPECT_EQ(ask(FUSE_READ, reading(8192, 128U << 10)).bytes(),
            Letters::between(8192, 8192 + (128U << 10)));
}

TEST(DriveTest, NothingIsPastTheEnd) {
  EXPECT_EQ(ask(FUSE_READ, reading(300 * kPage - 10, 4096)).bytes().size(), 10U);
  EXPECT_EQ(ask(FUSE_READ, reading(300 * kPage, 4096)).bytes(), "");
  EXPECT_EQ(ask(FUSE_READ, reading(~0ULL - 4095, 4096)).bytes(), "");
  EXPECT_EQ(ask(FUSE_READ, reading(~0ULL, 1)).error(), 0);
}

TEST(DriveTest, ReadingTooMuchOrWhatCannotBeReadIsAnError) {
  EXPECT_EQ(ask(FUSE_READ, reading(0, (128U << 10) + 1)).error(), EINVAL);
  EXPECT_EQ(ask(FUSE_READ, reading(0, ~0U)).error(), EINVAL);
  EXPECT_EQ(ask(FUSE_READ, char{0}).error(), EINVAL);
  EXPECT_EQ(ask(FUSE_READ, reading(290 * kPage, 4096)).error(), EIO);
}

TEST(DriveTest, OnlyTheOneFileIsThereAndItIsOnlyRead) {
  EXPECT_EQ(ask(FUSE_READ, reading(0, 4096), 2).error(), ENOENT);
  EXPECT_EQ(ask(FUSE_LOOKUP, "name").error(), ENOSYS);
  for (const std::uint32_t change : {FUSE_WRITE, FUSE_SETATTR, FUSE_FALLOCATE, FUSE_SETXATTR,
                                     FUSE_UNLINK, FUSE_CREATE, FUSE_IOCTL}) {
    EXPECT_EQ(ask(change, reading(0, 0)).error(), ENOSYS) << change;
  }
  fuse_open_in open{};
  EXPECT_EQ(ask(FUSE_OPEN, open).error(), 0);
  for (const int flags : {O_WRONLY, O_RDWR}) {
    open.flags = static_cast<std::uint32_t>(flags);
    EXPECT_EQ(ask(FUSE_OPEN, open).error(), EROFS);
  }
}

TEST(DriveTest, AKernelThatIsTooOldOrAnotherIsRefused) {
  fuse_init_in init{};
  init.major = FUSE_KERNEL_VERSION;
  init.minor = 31;
  EXPECT_EQ(ask(FUSE_INIT, init).error(), 0);
  init.minor = 30;
  EXPECT_EQ(ask(FUSE_INIT, init).error(), EPROTO);
  init.major = 8;
  EXPECT_EQ(ask(FUSE_INIT, init).error(), EPROTO);
  EXPECT_EQ(ask(FUSE_INIT, char{7}).error(), EPROTO);
}

// What the reader finds; 0: everything is right.
int read_drive(const char* place, pid_t server) {
  constexpr off_t kSize = 300 * kPage;
  const UniqueFd file(::open(place, O_RDONLY | O_CLOEXEC));
  struct stat info{};
  std::string buffer(250 * kPage, '\0');
  if (!file.valid() || ::lseek(file.get(), 0, SEEK_END) != kSize) {
    return 2;
  }
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != kJailId) {
    return 3;
  }
  if (::pread(file.get(), buffer.data(), buffer.size(), 1000) !=
          static_cast<ssize_t>(buffer.size()) ||
      buffer != Letters::between(1000, 1000 + buffer.size())) {
    return 4;
  }
  if (::pread(file.get(), buffer.data(), 4096, kSize - 100) != 100 ||
      ::pread(file.get(), buffer.data(), 4096, kSize) != 0) {
    return 5;
  }
  if (::pread(file.get(), buffer.data(), 4096, 290 * kPage) != -1 || errno != EIO) {
    return 6;
  }
  if (::open(place, O_RDWR | O_CLOEXEC) >= 0 || errno != EROFS) {
    return 7;
  }
  // With the one who serves it ends what is served, and nobody waits.
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return ::pread(file.get(), buffer.data(), 4096, 0) == -1 ? 0 : 8;
}

int live(const char* place) {
  if (!enter_namespaces().ok()) {
    return 1;
  }
  auto device = open_drive();
  if (!device.ok() || !mount_drive(device.value().get(), place).ok()) {
    return 1;
  }
  const pid_t server = ::fork();
  if (server == 0) {
    Letters letters;
    // A sanitizer looks at an object once for each place that uses it, by system calls that are
    // refused later.
    Blocks* const volatile known = &letters;
    std::array<char, kPage> page{};
    if (known->read(0, page) && lock_in(Post::kBesideMachine).ok()) {
      serve_drive(device.value().get(), letters);
    }
    ::_exit(0);
  }
  device.value().reset();
  return read_drive(place, server);
}

// By the host's kernel, in namespaces as a machine's, behind the filter of its librarian.
TEST(DriveTest, AProgramReadsItAsAFile) {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    GTEST_SKIP() << "this user may not use /dev/fuse";
  }
  std::string place = "/tmp/drive.XXXXXX";
  const UniqueFd file(::mkstemp(place.data()));
  ASSERT_TRUE(file.valid());
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(live(place.c_str()));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "step " << WEXITSTATUS(status);
  struct stat info{};
  EXPECT_EQ(::stat(place.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 0) << "the mount is seen outside";
  ::unlink(place.c_str());
}

}  // namespace
}  // namespace carrel::microvm
