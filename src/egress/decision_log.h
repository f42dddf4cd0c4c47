#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/decide.h"

namespace carrel::egress {

// One line of the log: what somebody in a sandbox wanted, and what became of it.
struct DecisionRecord {
  std::string_view sandbox;
  std::string_view event;  // lookup, connect, request, end
  std::string host;        // printable
  std::string address;     // what was dialled; can be empty
  std::uint16_t port = 0;
  std::string detail;  // a request's method and path, or what is for the host alone
  bool allowed = false;
  std::string rule;
  std::string reason;
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t duration_ms = 0;
};

// The decisions of one user's sandboxes, a JSON object in each line. It is cut when it has grown
// large: the newest lines and one older file are kept.
class DecisionLog {
 public:
  static constexpr const char* kDirectory = "net";
  static constexpr const char* kFile = "log";
  static constexpr const char* kOlder = "log.1";
  static constexpr std::uint64_t kLargest = 16ULL << 20;

  // In `home`, a directory.
  static Result<DecisionLog> open(int home);
  [[nodiscard]] int directory() const { return directory_.get(); }
  void add(const DecisionRecord& record);

 private:
  Status begin_file();

  UniqueFd directory_;
  UniqueFd file_;
  std::uint64_t size_ = 0;
};

}  // namespace carrel::egress
