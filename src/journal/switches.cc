#include "journal/switches.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

namespace carrel::journal {

Result<bool> parse_switch(std::string_view name, std::string_view value) {
  std::string word(value);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 4> kOn = {"1", "true", "yes", "on"};
  constexpr std::array<std::string_view, 5> kOff = {"", "0", "false", "no", "off"};
  if (std::find(kOn.begin(), kOn.end(), word) != kOn.end()) {
    return true;
  }
  if (std::find(kOff.begin(), kOff.end(), word) != kOff.end()) {
    return false;
  }
  return Error{Code::kInvalid, 0,
               "the environment variable " + std::string(name) + " is neither on nor off",
               "set it to 1 or to 0"};
}

Result<Switches> switches_from_environment() {
  const auto read = [](const char* name) {
    const char* value = std::getenv(name);
    return parse_switch(name, value == nullptr ? "" : value);
  };
  Switches switches;
  CARREL_ASSIGN(switches.disable_cache, read("DISABLE_CACHE"));
  CARREL_ASSIGN(switches.force_failure, read("FORCE_FAILURE"));
  return switches;
}

}  // namespace carrel::journal
