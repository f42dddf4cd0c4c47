#include "tools/workplace.h"

#include "base/utf8.h"

namespace carrel::tools {
namespace {

constexpr std::size_t kLongestPath = 4096;

Error refused(std::string_view path, const std::string& why, const std::string& hint = {}) {
  return {Code::kDenied, 0, "the path '" + replace_invalid_utf8(path.substr(0, 200)) + "' " + why,
          hint};
}

}  // namespace

Result<std::string> workspace_path(std::string_view given) {
  if (given.empty()) {
    return Error{Code::kInvalid, 0, "the path is empty", {}};
  }
  if (given.size() > kLongestPath || given.find('\0') != std::string_view::npos) {
    return Error{Code::kInvalid, 0, "the path is too long, or has a NUL byte in it", {}};
  }
  const bool absolute = given.front() == '/';
  std::vector<std::string_view> parts;
  for (std::string_view rest = given; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
    if (part == "..") {
      return refused(given, "has '..' in it, which is potentially unsafe");
    }
    if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
  }
  if (absolute) {
    if (parts.empty() || parts.front() != "workspace") {
      return refused(given, "is not in the workspace", "paths are relative to /workspace");
    }
    parts.erase(parts.begin());
  }
  std::string path;
  for (const std::string_view part : parts) {
    path += (path.empty() ? "" : "/") + std::string(part);
  }
  return path.empty() ? "." : path;
}

}  // namespace carrel::tools
