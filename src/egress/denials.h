#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace carrel::egress {

// What the policies of sandboxes denied from some moment on, as the log tells it (decision_log.h).
class Denials {
 public:
  // From now on; `home` is a directory, and borrowed.
  static Denials since_now(int home);

  struct Denied {
    std::string target;  // HOST or HOST:PORT
    std::string rule;    // that would allow it; empty where it cannot be written
  };
  // The first one of that sandbox's. Of a log that has grown by more than a megabyte only so much
  // is looked through.
  [[nodiscard]] std::optional<Denied> first_of(std::string_view sandbox) const;

 private:
  int home_ = -1;
  ino_t file_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace carrel::egress
