#include "backends/microvm/nbd.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>

namespace carrel::microvm {
namespace {

class LettersDisk final : public Blocks {
 public:
  [[nodiscard]] std::uint64_t size() const override { return 8 * 4096; }
  bool read(std::uint64_t offset, std::span<char> out) override {
    std::fill(out.begin(), out.end(), static_cast<char>('a' + offset / 4096));
    return offset != 7 * 4096;
  }
};

class NbdTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_ = ends[0];
    server_ = std::thread([end = ends[1]] {
      LettersDisk letters;
      serve_blocks(end, letters);
      ::close(end);
    });
  }
  void TearDown() override {
    ::shutdown(client_, SHUT_RDWR);
    server_.join();
    ::close(client_);
  }

  static std::string field(std::uint64_t value, std::size_t size) {
    std::string text;
    for (std::size_t i = size; i-- > 0;) {
      text.push_back(static_cast<char>(value >> (8 * i)));
    }
    return text;
  }
  void send(const std::string& text) const {
    ASSERT_EQ(::send(client_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] std::string receive(std::size_t size) const {
    std::string text(size, '\0');
    const ssize_t n = ::recv(client_, text.data(), size, MSG_WAITALL);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }
  static std::string option(std::uint32_t number, const std::string& data) {
    return "IHAVEOPT" + field(number, 4) + field(data.size(), 4) + data;
  }
  static std::string request(std::uint16_t type, std::uint64_t offset, std::uint32_t size) {
    return field(0x25609513, 4) + field(0, 2) + field(type, 2) + field(77, 8) + field(offset, 8) +
           field(size, 4);
  }
  void begin() const {
    EXPECT_EQ(receive(18), "NBDMAGICIHAVEOPT" + field(3, 2));
    send(field(3, 4));
    send(option(8, ""));  // structured replies: unknown
    EXPECT_EQ(receive(20),
              field(0x3e889045565a9, 8) + field(8, 4) + field((1U << 31) | 1U, 4) + field(0, 4));
    send(option(7, field(4, 4) + "root" + field(0, 2)));
    EXPECT_EQ(receive(20 + 12), field(0x3e889045565a9, 8) + field(7, 4) + field(3, 4) +
                                    field(12, 4) + field(0, 2) + field(8 * 4096, 8) + field(3, 2));
    (void)receive(20 + 14);
    EXPECT_EQ(receive(20).substr(12, 4), field(1, 4));
  }

  int client_ = -1;
  std::thread server_;
};

TEST_F(NbdTest, ReadsWhatIsThere) {
  begin();
  send(request(0, 2 * 4096, 4096));
  EXPECT_EQ(receive(16), field(0x67446698, 4) + field(0, 4) + field(77, 8));
  EXPECT_EQ(receive(4096), std::string(4096, 'c'));
  // An error of the device is one of the request, and it goes on.
  send(request(0, 7 * 4096, 4096));
  EXPECT_EQ(receive(16), field(0x67446698, 4) + field(5, 4) + field(77, 8));
  send(request(0, 0, 8192));
  EXPECT_EQ(receive(16).substr(4, 4), field(0, 4));
  EXPECT_EQ(receive(8192).size(), 8192U);
}

TEST_F(NbdTest, ReadingPastTheEndEndsIt) {
  begin();
  send(request(0, 7 * 4096, 8192));
  EXPECT_EQ(receive(16), "");
}

TEST_F(NbdTest, ReadingTooMuchEndsIt) {
  begin();
  send(request(0, 0, 2U << 20));
  EXPECT_EQ(receive(16), "");
}

TEST_F(NbdTest, AnOffsetThatWrapsEndsIt) {
  begin();
  send(request(0, ~0ULL - 4095, 4096));
  EXPECT_EQ(receive(16), "");
}

TEST_F(NbdTest, WritingEndsIt) {
  begin();
  send(request(1, 0, 4096));
  EXPECT_EQ(receive(16), "");
}

TEST_F(NbdTest, AnOptionThatIsTooLargeEndsIt) {
  EXPECT_EQ(receive(18).size(), 18U);
  send(field(3, 4) + "IHAVEOPT" + field(7, 4) + field(1U << 30, 4));
  EXPECT_EQ(receive(1), "");
}

}  // namespace
}  // namespace carrel::microvm
