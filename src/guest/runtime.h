#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What the guest has instead of a C++ library: thin calls around the kernel. Calls that musl does
// not know return the kernel's answer, a value or a negative errno.
namespace carrel::guest {

std::uint64_t now_us();  // monotonic
std::uint64_t wall_clock_ms();

int open_tree(int dir, const char* path, unsigned flags);
// Onto `path` in the directory `to`; an empty path is the directory itself.
int move_mount(int from, int to, const char* path);
int fs_open(const char* type);
int fs_set(int context, const char* key, const char* value);
int fs_create(int context);
int fs_mount(int context, std::uint64_t attributes);
int mount_set(int mount, std::uint64_t attributes, unsigned flags);
// Opens `path` beneath `root`, following no link of any kind.
int open_beneath(int root, const char* path, int flags);
// The same one name at a time, for kernels without openat2; ".." is refused.
int walk_beneath(int root, const char* path, int flags);
// A directory to be listed, unless `name` is a link. As openat().
int open_directory(int at, const char* name);
// CRITICAL: after a negative answer some may still be open.
int close_between(unsigned first, unsigned last);
int close_from(unsigned first);

// The last of these calls that the kernel did not know, with the release that brought it; empty: it
// knew them all.
std::string_view missing_call();

// Writes all of it to a blocking descriptor; false on an error.
bool write_whole(int fd, std::string_view data);
// One write to a file of /proc or of a cgroup: 0 or a negative errno.
int write_file(int dir, const char* path, std::string_view value);

// The part of a text from `at` on, and at most `size` of it. substr() would throw where there is
// nothing, and nobody here can.
inline std::string_view part(std::string_view text, std::size_t at,
                             std::size_t size = std::string_view::npos) {
  if (at >= text.size()) {
    return {};
  }
  const std::size_t rest = text.size() - at;
  return {text.data() + at, size < rest ? size : rest};
}

// Writes `value` in decimal and returns the end. The buffer has room for 20 digits.
char* put_decimal(char* out, std::uint64_t value);

// A bounded C string from pieces, for paths and messages. What does not fit is cut.
template <std::size_t kSize>
class Text {
 public:
  Text& add(std::string_view piece) {
    for (char c : piece) {
      if (size_ + 1 < kSize) {
        data_[size_++] = c;
      }
    }
    data_[size_] = '\0';
    return *this;
  }
  Text& add_number(std::uint64_t value) {
    char digits[21];
    return add({digits, static_cast<std::size_t>(put_decimal(digits, value) - digits)});
  }
  [[nodiscard]] const char* c_str() const { return data_; }
  [[nodiscard]] std::string_view view() const { return {data_, size_}; }

 private:
  char data_[kSize] = {};
  std::size_t size_ = 0;
};

using Path = Text<4096>;

}  // namespace carrel::guest
