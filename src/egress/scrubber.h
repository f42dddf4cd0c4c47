#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carrel::egress {

// Covers secrets in text that comes piece by piece: each of their bytes becomes '*', so that what
// comes out is as long as what came in. Only a secret as it is, is seen: not one that somebody
// encoded in another way.
class Scrubber {
 public:
  void add(const std::string& secret);
  [[nodiscard]] bool idle() const { return secrets_.empty(); }

  // What can be shown by now. An end that a secret could begin with is kept back, and nothing else.
  std::string feed(std::string_view piece);
  // What was kept back: nothing follows it.
  std::string finish();

 private:
  std::vector<std::string> secrets_;
  std::string kept_;   // as it came
  std::string shown_;  // and as it will be shown, as far as is known
};

}  // namespace carrel::egress
