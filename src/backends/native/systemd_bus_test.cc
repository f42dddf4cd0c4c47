#include "backends/native/systemd_bus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "backends/native/dbus_message.h"
#include "support/patience.h"

namespace carrel::native {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

BusDeadline in(milliseconds time) { return std::chrono::steady_clock::now() + time; }

std::string answer_to(std::uint32_t serial, DbusKind kind, const std::string& error) {
  DbusWriter body;
  body.string(error.empty() ? "/org/freedesktop/systemd1/job/7" : "no such luck");
  DbusWriter writer;
  writer.byte('l');
  writer.byte(static_cast<std::uint8_t>(kind));
  writer.byte(0);
  writer.byte(1);
  writer.u32(static_cast<std::uint32_t>(body.data().size()));
  writer.u32(1000);
  const DbusWriter::Array fields = writer.begin_array(8);
  if (serial != 0) {
    writer.align(8);
    writer.byte(5);
    writer.signature("u");
    writer.u32(serial);
  }
  if (!error.empty()) {
    writer.align(8);
    writer.byte(4);
    writer.signature("s");
    writer.string(error);
  }
  writer.align(8);
  writer.byte(8);
  writer.signature("g");
  writer.signature(error.empty() ? "o" : "s");
  writer.end_array(fields);
  writer.align(8);
  return writer.data() + body.data();
}

// A service manager that plays its part from a list: reads something, then says the next.
class FakeManager {
 public:
  explicit FakeManager(std::vector<std::string> lines) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_.reset(ends[0]);
    server_.reset(ends[1]);
    thread_ = std::thread([this, lines = std::move(lines)] {
      for (const std::string& line : lines) {
        std::array<char, 4096> buffer;
        const ssize_t got = ::recv(server_.get(), buffer.data(), buffer.size(), 0);
        if (got <= 0) {
          return;
        }
        heard_.append(buffer.data(), static_cast<std::size_t>(got));
        // BEGIN and the call after it may come together or not.
        while (heard_.ends_with("BEGIN\r\n")) {
          const ssize_t more = ::recv(server_.get(), buffer.data(), buffer.size(), 0);
          if (more <= 0) {
            return;
          }
          heard_.append(buffer.data(), static_cast<std::size_t>(more));
        }
        EXPECT_EQ(::send(server_.get(), line.data(), line.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(line.size()));
      }
      ::shutdown(server_.get(), SHUT_WR);
    });
  }
  ~FakeManager() {
    client_.reset();
    thread_.join();
  }
  FakeManager(const FakeManager&) = delete;
  FakeManager& operator=(const FakeManager&) = delete;

  [[nodiscard]] int client() const { return client_.get(); }
  // After everything was said.
  std::string heard() {
    ::shutdown(client_.get(), SHUT_RDWR);
    thread_.join();
    thread_ = std::thread([] {});
    return heard_;
  }

 private:
  UniqueFd client_;
  UniqueFd server_;
  std::string heard_;
  std::thread thread_;
};

ScopeRequest some_scope() {
  ScopeRequest request;
  request.unit = "carrel-keeper-1234abcd-00112233.scope";
  request.description = "sandboxes";
  return request;
}

constexpr char kWelcome[] = "OK 0123456789abcdef0123456789abcdef\r\n";
constexpr auto kManager = BusAddress::Kind::kManager;

TEST(SystemdBus, RootAsksTheSystemAndOthersTheirOwn) {
  EXPECT_EQ(manager_addresses(0, "/run/user/0").front().path, "/run/systemd/private");
  const auto plain = manager_addresses(1000, "");
  ASSERT_EQ(plain.size(), 2U);
  EXPECT_EQ(plain[0].path, "/run/user/1000/systemd/private");
  EXPECT_EQ(plain[0].kind, BusAddress::Kind::kManager);
  EXPECT_EQ(plain[1].path, "/run/user/1000/bus");
  EXPECT_EQ(plain[1].kind, BusAddress::Kind::kBus);
  EXPECT_EQ(manager_addresses(1000, "/elsewhere")[1].path, "/elsewhere/bus");
  EXPECT_EQ(manager_addresses(1000, "relative")[1].path, "/run/user/1000/bus");
}

TEST(SystemdBus, ScopeIsDelegatedAndHasWhoAsks) {
  const std::string body = encode_scope(some_scope());
  const std::string delegate = std::string("Delegate\0\1b\0", 12);
  EXPECT_NE(body.find(delegate), std::string::npos);
  // An array of one number: four bytes of size, then 0 for whoever asks.
  const std::string processes = std::string("PIDs\0\2au\0", 9);
  const std::size_t at = body.find(processes);
  ASSERT_NE(at, std::string::npos);
  const std::size_t size_at = (at + processes.size() + 3) & ~std::size_t{3};
  EXPECT_EQ(body.substr(size_at, 8), std::string("\4\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(body.find("carrel-keeper-1234abcd-00112233.scope"), 4U);
}

TEST(SystemdBus, YesIsYes) {
  FakeManager manager({kWelcome, answer_to(1, DbusKind::kReturn, "")});
  Status status = start_scope(manager.client(), kManager, some_scope(), in(seconds(5)));
  EXPECT_TRUE(status.ok()) << status.error().to_string();
  const std::string heard = manager.heard();
  std::string hex;
  for (char digit : std::to_string(::geteuid())) {
    hex += "3";
    hex += digit;
  }
  EXPECT_TRUE(heard.starts_with(std::string(1, '\0') + "AUTH EXTERNAL " + hex + "\r\nBEGIN\r\n"));
  EXPECT_THAT(heard, HasSubstr("StartTransientUnit"));
}

TEST(SystemdBus, BusIsGreetedFirst) {
  FakeManager manager(
      {kWelcome, answer_to(1, DbusKind::kReturn, ""), answer_to(2, DbusKind::kReturn, "")});
  Status status =
      start_scope(manager.client(), BusAddress::Kind::kBus, some_scope(), in(seconds(5)));
  EXPECT_TRUE(status.ok()) << status.error().to_string();
  const std::string heard = manager.heard();
  EXPECT_LT(heard.find("Hello"), heard.find("StartTransientUnit"));
}

TEST(SystemdBus, RefusalIsToldInItsWords) {
  FakeManager manager({kWelcome, answer_to(1, DbusKind::kError, "org.freedesktop.No")});
  Status status = start_scope(manager.client(), kManager, some_scope(), in(seconds(5)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "no such luck");
}

TEST(SystemdBus, SignalsBeforeTheAnswerArePassedOver) {
  const std::string signal = answer_to(0, DbusKind::kSignal, "");
  FakeManager manager({kWelcome, signal + signal + answer_to(55, DbusKind::kReturn, "") +
                                     answer_to(1, DbusKind::kReturn, "")});
  EXPECT_TRUE(start_scope(manager.client(), kManager, some_scope(), in(seconds(5))).ok());
}

TEST(SystemdBus, StrangerIsRefused) {
  FakeManager manager({"REJECTED EXTERNAL\r\n"});
  Status status = start_scope(manager.client(), kManager, some_scope(), in(seconds(5)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kDenied);
}

TEST(SystemdBus, EndlessGreetingIsNotReadToItsEnd) {
  FakeManager manager({std::string(3000, 'O')});
  Status status = start_scope(manager.client(), kManager, some_scope(), in(seconds(5)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalid);
}

TEST(SystemdBus, NonsenseIsRefused) {
  FakeManager manager({kWelcome, std::string(64, 'x')});
  Status status = start_scope(manager.client(), kManager, some_scope(), in(seconds(5)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kInvalid);
}

TEST(SystemdBus, HangUpIsNoticed) {
  FakeManager manager({kWelcome});
  Status status = start_scope(manager.client(), kManager, some_scope(), in(seconds(5)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kUnavailable);
}

TEST(SystemdBus, SilenceIsWaitedForOnlySoLong) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  UniqueFd client(ends[0]);
  UniqueFd silent(ends[1]);
  const auto begin = std::chrono::steady_clock::now();
  Status status = start_scope(client.get(), kManager, some_scope(), in(milliseconds(50)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patient(seconds(5)));
}

TEST(SystemdBus, NobodyThereIsNoManager) {
  auto connection = connect_manager({"/no/such/socket", kManager}, in(seconds(1)));
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().error_number, ENOENT);
}

}  // namespace
}  // namespace carrel::native
