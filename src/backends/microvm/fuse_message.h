#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// The messages of FUSE, which a machine's kernel sends for a tree of the host's. What comes is
// hostile: a message that is not whole, or a name that is not one, is malformed.
namespace carrel::microvm {

// The most bytes of a file that one message carries, and so the largest message.
inline constexpr std::uint32_t kFuseData = 64U << 10;
inline constexpr std::size_t kLargestFuse = kFuseData + 8192;

struct FuseRequest {
  std::uint32_t opcode = 0;
  std::uint64_t unique = 0;
  std::uint64_t node = 0;
  std::string_view body;
};

// How long a message is that begins with these bytes of a header; 0: it is malformed.
std::size_t fuse_size(const fuse_in_header& header);
// `message` is as long as its header says.
bool parse_fuse(std::string_view message, FuseRequest& request);

// A name in a folder: not empty, of no more than 255 bytes, no path, neither "." nor "..".
bool is_plain_name(std::string_view name);

// What is in a message after its header, piece by piece.
class FuseBody {
 public:
  explicit FuseBody(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  bool take(T& value) {
    if (rest_.size() < sizeof value) {
      return false;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return true;
  }
  // A text that ends with a zero byte; take_name: one that is a plain name.
  bool take_text(std::string& text);
  bool take_name(std::string& name);
  [[nodiscard]] std::string_view rest() const { return rest_; }
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// An answer: an errno, or bytes.
class FuseReply {
 public:
  template <typename T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_bytes(std::string_view bytes) { bytes_ += bytes; }
  // Room for `size` more bytes at the end, to be cut to what there was.
  char* extend(std::size_t size);
  void cut(std::size_t size) { bytes_.resize(size); }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }

  void fail(int error_number) { error_ = error_number; }
  void be_silent() { silent_ = true; }  // nobody waits for an answer
  [[nodiscard]] bool is_silent() const { return silent_; }
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] std::string_view bytes() const { return bytes_; }
  // The whole message.
  [[nodiscard]] std::string encode(std::uint64_t unique) const;

 private:
  std::string bytes_;
  int error_ = 0;
  bool silent_ = false;
};

}  // namespace carrel::microvm
