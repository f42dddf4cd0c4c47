#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

namespace carrel::storage {

// What is shorter would be found, and covered, in text that has nothing to do with it.
inline constexpr std::size_t kShortestSecret = 8;
inline constexpr std::size_t kLongestSecret = 8192;

// Secrets of the user's, each in a file of its own that he alone can read: secrets/NAME in the
// home. They are nowhere else. Names are as policy::check_secret_name() has them.
class Secrets {
 public:
  static Result<Secrets> open(const Home& home);

  // Visible characters and spaces; the end of a line at its end is left out.
  Status set(const std::string& name, std::string_view value);
  // As it is at this moment. kNotFound: there is none of that name.
  [[nodiscard]] Result<std::string> read(const std::string& name) const;
  Status remove(const std::string& name);
  struct Entry {
    std::string name;
    std::int64_t set_ms = 0;  // when, by the wall clock
  };
  // In the order of their names.
  [[nodiscard]] Result<std::vector<Entry>> list() const;

 private:
  explicit Secrets(UniqueFd directory) : directory_(std::move(directory)) {}

  UniqueFd directory_;
};

}  // namespace carrel::storage
