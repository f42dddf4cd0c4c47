#include "dns/hosts_file.h"

#include <algorithm>

namespace carrel::dns {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::size_t kMostListed = 64;

// Takes the next word from the front; empty: there is none.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

bool same_name(std::string_view word, std::string_view name) {
  word.remove_suffix(word.ends_with('.') ? 1 : 0);
  return std::equal(word.begin(), word.end(), name.begin(), name.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

bool has_name(std::string_view words, const policy::Host& name) {
  for (std::string_view word = next_word(words); !word.empty(); word = next_word(words)) {
    if (same_name(word, name.text())) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Address> find_in_hosts(std::string_view text, const policy::Host& name) {
  std::vector<Address> found;
  while (!text.empty() && found.size() < kMostListed) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string_view first = next_word(line);
    if (first.empty() || !has_name(line, name)) {
      continue;
    }
    const auto address = Address::parse(first);
    if (address.has_value() && std::find(found.begin(), found.end(), *address) == found.end()) {
      found.push_back(*address);
    }
  }
  return found;
}

}  // namespace carrel::dns
