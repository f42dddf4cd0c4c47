#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::policy {

// An object whose members are asked for by name. The first thing that is wrong is kept, and what
// nobody asked for is wrong, too: finish() tells.
class Fields {
 public:
  using Json = nlohmann::ordered_json;

  // `what` is what the errors call it.
  explicit Fields(const Json& object, std::string_view what = "the body");

  std::optional<std::string> text(std::string_view name);
  std::string needed_text(std::string_view name);
  std::optional<bool> flag(std::string_view name);
  std::optional<std::uint64_t> number(std::string_view name, std::uint64_t most);
  // Seconds as a number, or a text such as "2m".
  std::optional<std::chrono::milliseconds> duration(std::string_view name);
  std::optional<std::vector<std::string>> texts(std::string_view name);
  // An object of texts, as "NAME=VALUE".
  std::vector<std::string> variables(std::string_view name);
  // What is there under that name, whatever it is; null: nothing.
  const Json* any(std::string_view name);

  // Members that others have read.
  void allow(std::string_view name) { known_.emplace_back(name); }
  [[nodiscard]] Status finish() const;

 private:
  const Json* take(std::string_view name);
  void refuse(std::string_view name, std::string_view wanted);

  const Json& object_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
  std::optional<Error> missing_;  // told last: a wrong name explains it
};

}  // namespace carrel::policy
