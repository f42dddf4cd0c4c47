#include "server/routes.h"

namespace carrel::server {
namespace {

bool is_argument(std::string_view segment) {
  if (segment.empty() || segment.size() > 64 || segment.front() == '.') {
    return false;
  }
  for (const char c : segment) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!good) {
      return false;
    }
  }
  return true;
}

std::string_view take_segment(std::string_view& path) {
  const std::string_view segment = path.substr(0, path.find('/'));
  path.remove_prefix(segment.size() < path.size() ? segment.size() + 1 : segment.size());
  return segment;
}

// Whether the path is one of the template's, segment by segment.
bool fits(std::string_view pattern, std::string_view path, std::vector<std::string>& arguments) {
  arguments.clear();
  if (path.ends_with('/') || !path.starts_with('/')) {
    return false;
  }
  pattern.remove_prefix(1);
  path.remove_prefix(1);
  while (!pattern.empty() && !path.empty()) {
    const std::string_view wanted = take_segment(pattern);
    const std::string_view given = take_segment(path);
    if (wanted.starts_with('{')) {
      if (!is_argument(given)) {
        return false;
      }
      arguments.emplace_back(given);
    } else if (wanted != given) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

}  // namespace

Match find_route(std::string_view method, std::string_view path) {
  Match match;
  std::vector<std::string> arguments;
  for (const Route& route : routes()) {
    if (!fits(route.path, path, arguments)) {
      continue;
    }
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      match.route = &route;
      match.arguments = std::move(arguments);
      return match;
    }
    match.methods += (match.methods.empty() ? "" : ", ") + std::string(route.method);
  }
  return match;
}

}  // namespace carrel::server
