#include "backends/microvm/nbd.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::microvm {

namespace {

constexpr std::uint64_t kOptionMagic = 0x49484156454F5054;  // "IHAVEOPT"
constexpr std::uint64_t kReplyMagic = 0x3e889045565a9;
constexpr std::uint32_t kRequestMagic = 0x25609513;
constexpr std::uint32_t kAnswerMagic = 0x67446698;
constexpr std::uint32_t kUnknownOption = (1U << 31) | 1U;
constexpr std::size_t kLargestOption = 8192;
constexpr std::uint32_t kLargestRead = 1U << 20;
constexpr std::uint32_t kBlock = 4096;
constexpr std::uint16_t kReadOnlyDevice = 3;  // it has flags, and is read-only
constexpr std::uint32_t kInputOutputError = 5;

enum Option : std::uint32_t { kExportName = 1, kAbort = 2, kInfo = 6, kGo = 7 };

class Server {
 public:
  Server(int socket, Blocks& blocks) : socket_(socket), blocks_(blocks) {}

  void run() {
    if (!shake_hands()) {
      return;
    }
    while (answer_request()) {
    }
  }

 private:
  bool receive(void* out, std::size_t size) const {
    auto* at = static_cast<char*>(out);
    while (size > 0) {
      const ssize_t n = ::recv(socket_, at, size, 0);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        return false;
      }
      at += n;
      size -= static_cast<std::size_t>(n);
    }
    return true;
  }

  [[nodiscard]] bool send(std::string_view data) const {
    while (!data.empty()) {
      const ssize_t n = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        return false;
      }
      data.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // Fields of this protocol are big-endian.
  template <typename Value>
  bool read(Value& value) const {
    std::array<unsigned char, sizeof(Value)> bytes{};
    if (!receive(bytes.data(), bytes.size())) {
      return false;
    }
    std::uint64_t number = 0;
    for (const unsigned char byte : bytes) {
      number = number << 8 | byte;
    }
    value = static_cast<Value>(number);
    return true;
  }

  template <typename Value>
  static void put(std::string& out, Value value) {
    for (std::size_t i = sizeof(Value); i-- > 0;) {
      out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
  }

  [[nodiscard]] bool reply(std::uint32_t option, std::uint32_t type,
                           std::string_view data = {}) const {
    std::string out;
    put(out, kReplyMagic);
    put(out, option);
    put(out, type);
    put(out, static_cast<std::uint32_t>(data.size()));
    out.append(data);
    return send(out);
  }

  [[nodiscard]] bool tell_device(std::uint32_t option) const {
    constexpr std::uint32_t kAcknowledged = 1;
    constexpr std::uint32_t kInformation = 3;
    constexpr std::uint16_t kAboutDevice = 0;
    constexpr std::uint16_t kAboutBlocks = 3;
    std::string device;
    put(device, kAboutDevice);
    put(device, blocks_.size());
    put(device, kReadOnlyDevice);
    std::string sizes;
    put(sizes, kAboutBlocks);
    put(sizes, kBlock);
    put(sizes, kBlock);
    put(sizes, kLargestRead);
    return reply(option, kInformation, device) && reply(option, kInformation, sizes) &&
           reply(option, kAcknowledged);
  }

  bool shake_hands() {
    constexpr std::uint16_t kNewStyle = 3;  // and no padding
    std::string greeting = "NBDMAGIC";
    put(greeting, kOptionMagic);
    put(greeting, kNewStyle);
    std::uint32_t flags = 0;
    if (!send(greeting) || !read(flags) || (flags & ~std::uint32_t{kNewStyle}) != 0) {
      return false;
    }
    constexpr int kMostOptions = 32;
    for (int i = 0; i < kMostOptions; ++i) {
      std::uint64_t magic = 0;
      std::uint32_t option = 0;
      std::uint32_t size = 0;
      std::vector<char> data;
      if (!read(magic) || !read(option) || !read(size) || magic != kOptionMagic ||
          size > kLargestOption) {
        return false;
      }
      data.resize(size);
      if (!receive(data.data(), size) || option == kAbort) {
        return false;
      }
      if (option == kGo) {
        return tell_device(option);
      }
      if (option == kExportName) {
        std::string device;
        put(device, blocks_.size());
        put(device, kReadOnlyDevice);
        if ((flags & 2U) == 0) {
          device.append(124, '\0');
        }
        return send(device);
      }
      if (!(option == kInfo ? tell_device(option) : reply(option, kUnknownOption))) {
        return false;
      }
    }
    return false;
  }

  bool answer_request() {
    constexpr std::uint16_t kRead = 0;
    std::uint32_t magic = 0;
    std::uint16_t flags = 0;
    std::uint16_t type = 0;
    std::uint64_t handle = 0;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    if (!read(magic) || !read(flags) || !read(type) || !read(handle) || !read(offset) ||
        !read(size) || magic != kRequestMagic || type != kRead) {
      return false;
    }
    // CRITICAL: nothing but what is on the device, and in pieces of a bounded size.
    if (size == 0 || size > kLargestRead || size % kBlock != 0 || offset % kBlock != 0 ||
        offset > blocks_.size() || size > blocks_.size() - offset) {
      return false;
    }
    buffer_.resize(size);
    const bool ok = blocks_.read(offset, buffer_);
    std::string out;
    put(out, kAnswerMagic);
    put(out, ok ? 0U : kInputOutputError);
    put(out, handle);
    return send(out) && (!ok || send({buffer_.data(), buffer_.size()}));
  }

  int socket_;
  Blocks& blocks_;
  std::vector<char> buffer_;
};

}  // namespace

void serve_blocks(int socket, Blocks& blocks) { Server(socket, blocks).run(); }

}  // namespace carrel::microvm
