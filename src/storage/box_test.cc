#include "storage/box.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace carrel::storage {
namespace {

class BoxTest : public ::testing::Test {
 protected:
  BoxTest() {
    char name[] = "/tmp/carrel-box-XXXXXX";
    root_ = ::mkdtemp(name);
    home_ = std::move(Home::open_at(root_).value());
  }
  ~BoxTest() override { std::filesystem::remove_all(root_); }

  BoxRecord make(const std::string& id, const std::string& name = {}) {
    BoxRecord record;
    record.id = id;
    record.name = name;
    record.pid = ::getpid();
    record.start_time = start_time_of(::getpid());
    record.boot_id = boot_id();
    record.timeout_ms = 300'000;
    record.workdir = "/work space=1";
    sockets_.push_back(std::move(bind_socket(home_, id).value()));
    EXPECT_TRUE(write_record(home_, record).ok());
    return record;
  }

  std::string root_;
  Home home_;
  std::vector<UniqueFd> sockets_;
};

TEST_F(BoxTest, ARecordComesBackAsItWas) {
  BoxRecord record = make("aaaa-1", "dev");
  BoxRecord read = read_record(home_, "aaaa-1").value();
  EXPECT_EQ(read.pid, record.pid);
  EXPECT_EQ(read.start_time, record.start_time);
  EXPECT_EQ(read.workdir, "/work space=1");
  EXPECT_EQ(read.name, "dev");
}

TEST_F(BoxTest, ASandboxIsFoundByIdByNameAndByTheBeginningOfItsId) {
  make("aaaa-1", "dev");
  make("aabb-2");
  EXPECT_EQ(find_box(home_, "aaaa-1").value().id, "aaaa-1");
  EXPECT_EQ(find_box(home_, "dev").value().id, "aaaa-1");
  EXPECT_EQ(find_box(home_, "aab").value().id, "aabb-2");
  EXPECT_EQ(find_box(home_, "aa").error().code, Code::kInvalid);
  EXPECT_EQ(find_box(home_, "zz").error().message, "Sandbox zz not found");
}

TEST_F(BoxTest, PathsAreNeverNames) {
  for (const char* bad : {"", "..", ".", "../once", "/etc", "a/b"}) {
    EXPECT_EQ(find_box(home_, bad).error().code, Code::kNotFound) << bad;
  }
}

TEST_F(BoxTest, AListeningGuestIsReached) {
  BoxRecord record = make("aaaa-1");
  ASSERT_EQ(::listen(sockets_[0].get(), 4), 0);
  EXPECT_TRUE(connect_box(home_, record).ok());
}

TEST_F(BoxTest, ASocketThatAnotherProcessListensOnIsRefused) {
  BoxRecord record = make("aaaa-1");
  pid_t child = ::fork();
  if (child == 0) {
    ::listen(sockets_[0].get(), 4);
    ::pause();
    ::_exit(0);
  }
  ::usleep(50'000);
  auto connected = connect_box(home_, record);
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, Code::kGone);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(BoxTest, ADeadGuestIsGone) {
  BoxRecord record = make("aaaa-1");
  auto connected = connect_box(home_, record);
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.error().code, Code::kGone);
  record.start_time += 1;
  EXPECT_FALSE(is_alive(record));
}

TEST_F(BoxTest, ALongStateDirectoryIsNoProblemForTheSocket) {
  std::string deep = root_ + "/" + std::string(120, 'd');
  Home home = std::move(Home::open_at(deep).value());
  EXPECT_TRUE(bind_socket(home, "aaaa-1").ok());
}

TEST_F(BoxTest, ADamagedRecordIsAnErrorAndNotACrash) {
  make("aaaa-1");
  int fd = ::open((root_ + "/run/box/aaaa-1/record").c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  ::close(fd);
  EXPECT_EQ(read_record(home_, "aaaa-1").error().code, Code::kConflict);
}

}  // namespace
}  // namespace carrel::storage
