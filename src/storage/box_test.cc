#include "storage/box.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

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
    sockets_.push_back(std::move(make_box(home_, id).value().socket));
    EXPECT_TRUE(write_draft(home_, record).ok() && publish_draft(home_, id).ok());
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

TEST_F(BoxTest, AWholeIdIsNoName) {
  const std::string id = "6fae0569-2217-485c-ac56-154f7ba5febd";
  make("aaaa-1", id);
  EXPECT_EQ(find_box(home_, id).error().code, Code::kNotFound);
  make(id);
  EXPECT_EQ(find_box(home_, id).value().id, id);
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
  EXPECT_TRUE(make_box(home, "aaaa-1").ok());
}

TEST_F(BoxTest, ABoxBelongsToItsMakerUntilTheLockIsLetGo) {
  auto box = make_box(home_, "aaaa-1");
  ASSERT_TRUE(box.ok());
  EXPECT_EQ(lock_box(home_, "aaaa-1", 0).error().code, Code::kConflict);
  box.value().lock.reset();
  EXPECT_TRUE(lock_box(home_, "aaaa-1", 0).ok());
  EXPECT_EQ(lock_box(home_, "bbbb-1", 0).error().code, Code::kNotFound);
  EXPECT_FALSE(make_box(home_, "aaaa-1").ok()) << "one id, one box";
}

TEST_F(BoxTest, TheLockOfABoxThatWasRemovedIsNoLock) {
  auto first = make_box(home_, "aaaa-1");
  ASSERT_TRUE(first.ok());
  std::thread later([&] {
    ::usleep(20'000);
    EXPECT_TRUE(remove_box(home_, "aaaa-1").ok());
    first.value().lock.reset();
  });
  EXPECT_EQ(lock_box(home_, "aaaa-1", 5000).error().code, Code::kNotFound);
  later.join();
}

TEST_F(BoxTest, MakersAndSweepersAtOnceNeverShareABox) {
  std::atomic<bool> over = false;
  std::thread sweeper([&] {
    while (!over) {
      for (const std::string& id : box_ids(home_)) {
        if (auto lock = lock_box(home_, id, 0); lock.ok() && !read_record(home_, id).ok()) {
          EXPECT_TRUE(remove_box(home_, id).ok());
        }
      }
    }
  });
  for (int i = 0; i < 300; ++i) {
    const std::string id = "box-" + std::to_string(i);
    auto box = make_box(home_, id);
    if (!box.ok()) {
      ADD_FAILURE() << box.error().to_string();
      break;
    }
    EXPECT_EQ(::access((root_ + "/run/box/" + id + "/socket").c_str(), F_OK), 0);
  }
  over = true;
  sweeper.join();
}

TEST_F(BoxTest, ADraftIsNoRecord) {
  BoxRecord record = make("aaaa-1");
  record.id = "bbbb-1";
  ASSERT_TRUE(make_box(home_, "bbbb-1").ok() && write_draft(home_, record).ok());
  EXPECT_EQ(find_box(home_, "bbbb-1").error().code, Code::kNotFound);
  EXPECT_EQ(read_draft(home_, "bbbb-1").value().pid, ::getpid());
  ASSERT_TRUE(publish_draft(home_, "bbbb-1").ok());
  EXPECT_EQ(find_box(home_, "bbbb-1").value().pid, ::getpid());
  EXPECT_FALSE(read_draft(home_, "bbbb-1").ok());
}

TEST_F(BoxTest, AnEndIsNotedWithItsReason) {
  make("aaaa-1");
  EXPECT_EQ(noted_end(home_, "aaaa-1"), "");
  ASSERT_TRUE(note_end(home_, "aaaa-1", "it was removed by hand").ok());
  EXPECT_EQ(noted_end(home_, "aaaa-1"), "it was removed by hand");
}

TEST_F(BoxTest, OnlyWhatMakeIdGivesIsAnId) {
  EXPECT_TRUE(is_id(make_id()));
  for (const char* bad :
       {"", "aaaa-1", "../../../../../../../../../../../..x",
        "0123456789abcdef0123456789abcdef0123", "01234567-89AB-4def-8123-456789abcdef"}) {
    EXPECT_FALSE(is_id(bad)) << bad;
  }
}

TEST_F(BoxTest, ADamagedRecordIsAnErrorAndNotACrash) {
  make("aaaa-1");
  int fd = ::open((root_ + "/run/box/aaaa-1/record").c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  ::close(fd);
  EXPECT_EQ(read_record(home_, "aaaa-1").error().code, Code::kConflict);
}

}  // namespace
}  // namespace carrel::storage
