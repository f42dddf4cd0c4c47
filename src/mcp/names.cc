#include "mcp/names.h"

namespace carrel::mcp {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

}  // namespace

std::string exposed_name(std::string_view server, std::string_view tool) {
  std::string name;
  for (const std::string_view part : {std::string_view("mcp"), server, tool}) {
    for (const char c : part) {
      if (is_plain(c)) {
        name += c;
      } else if (!name.ends_with('_')) {
        name += '_';
      }
    }
    if (!name.ends_with('_')) {
      name += '_';
    }
  }
  name.pop_back();
  return name.substr(0, kLongestToolName);
}

}  // namespace carrel::mcp
