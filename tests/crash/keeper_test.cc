// What clients, signals and deaths do to the keeper, and through it to the others.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <list>

#include "remains.h"
#include "support/box.h"
#include "support/fixture.h"
#include "support/patience.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A connection to the keeper of that user, made as that user.
class Caller {
 public:
  explicit Caller(As as) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = place().home(as) + "/run/keeper";
    EXPECT_LT(path.size(), sizeof address.sun_path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const bool other = as == As::kUser && ::geteuid() == 0;
    if (other) {
      EXPECT_EQ(::seteuid(Place::user_id()), 0);
    }
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
        << std::strerror(errno);
    if (other) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() { ::close(fd_); }

  void say(const std::string& bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Everything until the keeper closes the connection.
  [[nodiscard]] std::string listen() const {
    std::string heard;
    char piece[4096];
    for (ssize_t n = 0; (n = ::recv(fd_, piece, sizeof piece, 0)) > 0;) {
      heard.append(piece, static_cast<std::size_t>(n));
    }
    return heard;
  }

 private:
  int fd_;
};

std::string framed(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

std::size_t descriptors_of(pid_t pid) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

class KeeperTest : public CarrelTest {};
CARREL_AS_BOTH(KeeperTest);

TEST_P(KeeperTest, ASilentClientKeepsNobodyWaiting) {
  Box first(GetParam());
  std::list<Caller> silent;
  for (int i = 0; i < 20; ++i) {
    silent.emplace_back(GetParam());
  }
  silent.front().say(std::string("\x40\0\0", 3));
  Run made = carrel({"create"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_LT(made.duration, patient(seconds(2)));
  // And it is not heard for ever.
  EXPECT_NE(silent.back().listen().find("asked nothing"), std::string::npos);
}

TEST_P(KeeperTest, GarbageIsAnsweredAndForgotten) {
  Box first(GetParam());
  const pid_t keeper = keepers().at(0);
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff garbage"), framed("not json"), framed("{}"), framed("[1]"),
        framed(R"({"id":"../../x","name":"","lease_ms":0,"spec":"{}"})"),
        framed(R"({"id":5,"name":[],"lease_ms":-1,"spec":null})"), framed("{}") + "more"}) {
    Caller caller(GetParam());
    caller.say(bytes);
    EXPECT_NE(caller.listen().find("the request to the keeper"), std::string::npos) << bytes;
  }
  EXPECT_EQ(keepers(), std::vector<pid_t>{keeper});
  EXPECT_EQ(carrel({"create"}).status, 0);
}

TEST_P(KeeperTest, SignalsOfATerminalDoNotEndIt) {
  Box box(GetParam());
  const pid_t keeper = keepers().at(0);
  for (int signal : {SIGHUP, SIGPIPE, SIGINT, SIGQUIT, SIGTSTP}) {
    ASSERT_EQ(::kill(keeper, signal), 0);
  }
  EXPECT_EQ(carrel({"create"}).status, 0);
  EXPECT_EQ(keepers(), std::vector<pid_t>{keeper});
  EXPECT_EQ(::getsid(keeper) == ::getsid(0), false);
}

TEST_P(KeeperTest, HasNothingOfItsCallers) {
  int secret = ::open("/etc/hostname", O_RDONLY);  // inheritable
  ASSERT_GE(secret, 0);
  Options options{.environment = {"SECRET=do-not-keep"}};
  ASSERT_EQ(carrel({"create"}, options).status, 0);
  ::close(secret);
  const std::string process = "/proc/" + std::to_string(keepers().at(0));
  EXPECT_EQ(read_text(process + "/environ").value_or("").find("SECRET"), std::string::npos);
  for (const auto& entry : fs::directory_iterator(process + "/fd")) {
    std::error_code failed;
    EXPECT_NE(fs::read_symlink(entry.path(), failed), "/etc/hostname");
  }
}

// G17
TEST_P(KeeperTest, KeepsNoDescriptorsOfSandboxesThatAreGone) {
  Box stays(GetParam());
  carrel({"rm", "--force", Box(GetParam()).id()});
  const pid_t keeper = keepers().at(0);
  const std::size_t before = descriptors_of(keeper);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(carrel({"rm", "--force", Box(GetParam()).id()}).status, 0);
    EXPECT_NE(carrel({"create", "--mount", "/nowhere:/x"}).status, 0);
  }
  EXPECT_TRUE(eventually(seconds(3), [&] { return descriptors_of(keeper) <= before; }))
      << descriptors_of(keeper) << " instead of " << before;
  EXPECT_EQ(keepers(), std::vector<pid_t>{keeper});
}

TEST_P(KeeperTest, LeavesWhenThereIsNothingToKeep) {
  Box box(GetParam());
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_TRUE(eventually(seconds(8), [] { return keepers().empty(); }));
  EXPECT_EQ(carrel({"create"}).status, 0);
  EXPECT_EQ(keepers().size(), 1U);
}

// R189, B-42: a first process that never becomes ready: it is stopped before it could.
TEST_P(KeeperTest, ACreateThatHangsKeepsNobodyWaiting) {
  Box first(GetParam());
  for (int tries = 0; tries < 20; ++tries) {
    const std::vector<pid_t> known = first_processes();
    Process hanging(launch({"create"}));
    pid_t fresh = 0;
    const auto last = std::chrono::steady_clock::now() + seconds(1);
    while (fresh == 0 && std::chrono::steady_clock::now() < last) {
      for (pid_t pid : first_processes()) {
        // Before it executes the guest it is part of the keeper.
        std::error_code failed;
        const std::string program =
            fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", failed);
        const bool is_known = std::find(known.begin(), known.end(), pid) != known.end();
        fresh = !is_known && program.starts_with("/memfd:") ? pid : fresh;
      }
    }
    if (fresh == 0 || ::kill(fresh, SIGSTOP) != 0 || hanging.says_within(milliseconds(300), "\n")) {
      continue;  // it was quicker
    }
    Run made = carrel({"create"});
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_LT(made.duration, patient(seconds(3)));
    // Its command is killed: what was made for it goes, too.
    hanging.send(SIGKILL);
    hanging.wait(seconds(2));
    EXPECT_TRUE(eventually(seconds(3), [&] {
      return live_boxes(GetParam()).size() >= 2 && inconsistencies(GetParam()).empty();
    })) << inconsistencies(GetParam());
    return;
  }
  GTEST_SKIP() << "every first process was ready before it could be stopped";
}

TEST_P(KeeperTest, CreatesSucceedWhileKeepersDie) {
  constexpr std::size_t kCreates = 50;
  std::list<Process> creates;
  for (std::size_t i = 0; i < kCreates; ++i) {
    creates.emplace_back(launch({"create"}));
  }
  for (int i = 0; i < 6; ++i) {
    ::usleep(150'000);
    kill_keepers();
  }
  std::set<std::string> ids;
  for (Process& process : creates) {
    Run made = process.wait(seconds(60));
    EXPECT_EQ(made.status, 0) << made.err;
    ids.insert(made.out.substr(0, 36));
  }
  EXPECT_EQ(ids.size(), kCreates);
  EXPECT_EQ(live_boxes(GetParam()), ids);
  EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
}

// Creates at the moment when it leaves, as near as a test can come to it.
TEST_P(KeeperTest, ACreateThatComesAsItLeavesIsServed) {
  for (useconds_t early : {30'000U, 10'000U, 0U}) {
    Box box(GetParam());
    EXPECT_EQ(box.remove({"--force"}).status, 0);
    ::usleep(3'000'000 - early);
    Run made = carrel({"create"});
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_EQ(carrel({"sh", made.out.substr(0, 36), "echo ok"}).out, "ok\n");
    EXPECT_EQ(keepers().size(), 1U);
  }
}

}  // namespace
}  // namespace carrel::test
