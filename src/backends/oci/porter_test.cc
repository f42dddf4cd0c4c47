#include "backends/oci/porter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/unix_socket.h"

namespace carrel::oci {
namespace {

// A porter in a process of its own, for a kernel that only sleeps.
class PorterTest : public testing::Test {
 protected:
  void SetUp() override {
    address_.sun_family = AF_UNIX;
    static int count = 0;
    const std::string name =
        "carrel-porter-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
    name.copy(&address_.sun_path[1], sizeof address_.sun_path - 1);  // in no directory
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener.get(), where(), sizeof address_), 0);
    std::array<int, 2> door{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, door.data()), 0);
    door_.reset(door[1]);
    std::array<int, 2> told{};
    ASSERT_EQ(::pipe2(told.data(), O_CLOEXEC), 0);
    porter_ = ::fork();
    if (porter_ == 0) {
      door_.reset();
      be_porter(std::move(listener), UniqueFd(door[0]), told[1]);
    }
    ASSERT_EQ(::read(told[0], &guest_, sizeof guest_), static_cast<ssize_t>(sizeof guest_));
    ::close(told[0]);
    ::close(told[1]);
    ::close(door[0]);
  }

  void TearDown() override {
    ASSERT_GT(guest_, 0);
    ::kill(guest_, SIGKILL);
    EXPECT_EQ(::waitpid(porter_, nullptr, 0), porter_);
  }

  // With a child that stands for the kernel.
  [[noreturn]] static void be_porter(UniqueFd listener, UniqueFd door, int tell) {
    const pid_t kernel = ::fork();
    if (kernel == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      door.reset();
      listener.reset();
      ::close(tell);
      ::pause();
      ::_exit(0);
    }
    auto porter = Porter::at(std::move(listener), std::move(door));
    if (!porter.ok() || ::write(tell, &kernel, sizeof kernel) < 0) {
      ::_exit(1);
    }
    porter->serve(kernel);
  }

  [[nodiscard]] const sockaddr* where() const {
    return reinterpret_cast<const sockaddr*>(&address_);
  }

  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    constexpr int kTries = 500;
    for (int i = 0; i < kTries && ::connect(socket.get(), where(), sizeof address_) != 0; ++i) {
      ::poll(nullptr, 0, 10);
    }
    return socket;
  }

  // What came through the door: one byte with one descriptor.
  UniqueFd next() const {
    constexpr int kPatienceMs = 5000;
    std::array<char, 16> bytes{};
    std::vector<UniqueFd> descriptors;
    pollfd news{door_.get(), POLLIN, 0};
    if (::poll(&news, 1, kPatienceMs) != 1 ||
        receive_with(door_.get(), bytes, descriptors, 0) != 1 || descriptors.size() != 1) {
      return UniqueFd();
    }
    return std::move(descriptors.front());
  }

  void expect_passage() const {
    const UniqueFd client = connect();
    const UniqueFd inside = next();
    ASSERT_TRUE(inside.valid());
    ASSERT_EQ(::write(client.get(), "in", 2), 2);
    std::array<char, 8> heard{};
    EXPECT_EQ(::read(inside.get(), heard.data(), heard.size()), 2);
    ASSERT_EQ(::write(inside.get(), "out", 3), 3);
    EXPECT_EQ(::read(client.get(), heard.data(), heard.size()), 3);
  }

  // The second child of the porter.
  [[nodiscard]] pid_t worker() const {
    const std::string pid = std::to_string(porter_);
    const auto children = read_file_at(AT_FDCWD, "/proc/" + pid + "/task/" + pid + "/children", 64);
    std::istringstream numbers(children.ok() ? children.value() : "");
    for (pid_t child = 0; numbers >> child;) {
      if (child != guest_) {
        return child;
      }
    }
    return 0;
  }

  sockaddr_un address_{};
  UniqueFd door_;
  pid_t guest_ = 0;
  pid_t porter_ = 0;
};

TEST_F(PorterTest, EveryConnectionGoesThroughTheDoor) {
  expect_passage();
  expect_passage();
}

TEST_F(PorterTest, ClientsFindTheOneWhoBeganToListen) {
  const UniqueFd client = connect();
  ucred peer{};
  socklen_t size = sizeof peer;
  ASSERT_EQ(::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
  EXPECT_EQ(peer.pid, porter_);
}

TEST_F(PorterTest, WhoWorksIsReplacedWhenItIsEnded) {
  expect_passage();
  const pid_t first = worker();
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  expect_passage();
  EXPECT_NE(worker(), first);
}

TEST_F(PorterTest, NothingIsReadFromInside) {
  ASSERT_EQ(::write(door_.get(), "hostile", 7), 7);
  expect_passage();
}

TEST_F(PorterTest, AGuestThatTakesNothingTurnsClientsAway) {
  constexpr int kMany = 2000;
  for (int i = 0; i < kMany; ++i) {
    const UniqueFd client = connect();
    ASSERT_TRUE(client.valid());
  }
  while (next().valid()) {
    pollfd more{door_.get(), POLLIN, 0};
    if (::poll(&more, 1, 200) != 1) {
      break;
    }
  }
  expect_passage();
}

TEST_F(PorterTest, ItEndsWithTheKernel) {
  expect_passage();
  ASSERT_EQ(::kill(guest_, SIGKILL), 0);
  siginfo_t end{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(porter_), &end, WEXITED | WNOWAIT), 0);
}

}  // namespace
}  // namespace carrel::oci
