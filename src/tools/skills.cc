#include "tools/skills.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/files.h"
#include "base/open_below.h"
#include "base/utf8.h"

namespace carrel::tools {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kName = "SKILL.md";
constexpr int kDeepest = 16;
constexpr std::size_t kMostFolders = 10'000;
constexpr std::size_t kLongestShown = 200;

Error refused(const std::string& path) {
  return {Code::kDenied,
          0,
          "'" + replace_invalid_utf8(path.substr(0, kLongestShown)) +
              "' is not in the folder of skills",
          {}};
}

bool leads_out(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != std::string::npos) {
    return true;
  }
  const std::string fenced = "/" + path + "/";
  return fenced.find("/../") != std::string::npos;
}

class SkillTool final : public Tool {
 public:
  SkillTool(ToolDefinition definition, Skills skills)
      : Tool(std::move(definition)), skills_(std::move(skills)) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& /*cancel*/) override {
    const std::string action = arguments.at("action").get<std::string>();
    if (action == "list") {
      CARREL_ASSIGN(const std::vector<std::string> paths, skills_.list());
      return joined(paths, "there are no skills");
    }
    if (action == "read") {
      if (!arguments.contains("path")) {
        return ToolResult{.error = "skill read needs the argument 'path'"};
      }
      CARREL_ASSIGN(Skills::Text text, skills_.read(arguments.at("path").get<std::string>()));
      return ToolResult{.output = std::move(text.text),
                        .system = text.cut ? "the file is longer than what is shown" : ""};
    }
    if (!arguments.contains("query")) {
      return ToolResult{.error = "skill search needs the argument 'query'"};
    }
    CARREL_ASSIGN(const std::vector<std::string> lines,
                  skills_.search(arguments.at("query").get<std::string>()));
    return joined(lines, "no skill has that text");
  }

 private:
  static ToolResult joined(const std::vector<std::string>& lines, const std::string& none) {
    ToolResult result;
    for (const std::string& line : lines) {
      result.output += line + "\n";
    }
    if (lines.empty()) {
      result.output = none;
    }
    return result;
  }

  Skills skills_;
};

}  // namespace

Result<Skills> Skills::open(const std::string& folder) {
  if (folder.empty()) {
    return Error{Code::kInvalid, 0, "the tool 'skill' has no folder to read from",
                 "name one with 'skills' in the profile"};
  }
  auto root = open_at(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY);
  if (!root.ok()) {
    return Error{Code::kNotFound,
                 root.error().error_number,
                 "open the folder of skills '" + folder + "'",
                 {}};
  }
  return Skills(std::move(root.value()));
}

Result<std::vector<std::string>> Skills::list() const {
  std::vector<std::string> found;
  std::vector<std::pair<std::string, int>> folders = {{"", 0}};
  for (std::size_t visited = 0; !folders.empty() && visited < kMostFolders; ++visited) {
    const auto [folder, depth] = folders.back();
    folders.pop_back();
    auto directory = open_below(root_.get(), folder, O_RDONLY | O_DIRECTORY);
    if (!directory.ok()) {
      continue;
    }
    CARREL_ASSIGN(const std::vector<std::string> names, list_directory(directory->get()));
    for (const std::string& name : names) {
      struct stat info{};
      if (::fstatat(directory->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      const std::string path = folder.empty() ? name : folder + "/" + name;
      if (S_ISDIR(info.st_mode) && depth < kDeepest) {
        folders.emplace_back(path, depth + 1);
      } else if (S_ISREG(info.st_mode) && name == kName) {
        found.push_back(path);
      }
    }
  }
  std::sort(found.begin(), found.end());
  found.resize(std::min(found.size(), kMost));
  return found;
}

Result<Skills::Text> Skills::read(const std::string& path) const {
  if (leads_out(path)) {
    return refused(path);
  }
  auto file = open_below(root_.get(), path, O_RDONLY | O_NONBLOCK);
  if (!file.ok()) {
    const int number = file.error().error_number;
    if (number == ELOOP || number == EXDEV) {
      return refused(path);
    }
    return Error{Code::kNotFound, 0, "there is no skill '" + replace_invalid_utf8(path) + "'", {}};
  }
  struct stat info{};
  if (::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return refused(path);
  }
  std::string text(kLongestRead + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file->get(), text.data() + size, text.size() - size);
    if (got < 0) {
      return system_error("read the skill '" + path + "'");
    }
    if (got == 0) {
      break;
    }
    size += static_cast<std::size_t>(got);
  }
  Text result;
  result.cut = size > kLongestRead;
  text.resize(std::min(size, kLongestRead));
  result.text = replace_invalid_utf8(text);
  return result;
}

Result<std::vector<std::string>> Skills::search(const std::string& text) const {
  std::vector<std::string> found;
  const std::string wanted = lower(text);
  CARREL_ASSIGN(const std::vector<std::string> paths, list());
  for (const std::string& path : paths) {
    auto contents = read(path);
    if (!contents.ok()) {
      continue;
    }
    std::string_view rest = contents->text;
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (lower(line).find(wanted) == std::string::npos) {
        continue;
      }
      if (found.size() >= kMost) {
        return found;
      }
      found.push_back(path + ":" + std::to_string(number) + ": " +
                      replace_invalid_utf8(line.substr(0, kLongestShown)));
    }
  }
  return found;
}

std::unique_ptr<Tool> make_skill_tool(Skills skills) {
  const Json schema = {
      {"type", "object"},
      {"properties",
       {{"action", {{"type", "string"}, {"enum", {"list", "read", "search"}}}},
        {"path", {{"type", "string"}, {"description", "of what is to be read"}}},
        {"query",
         {{"type", "string"}, {"minLength", 1}, {"description", "a text to search for"}}}}},
      {"required", {"action"}},
      {"additionalProperties", false}};
  return std::make_unique<SkillTool>(
      ToolDefinition{"skill",
                     "Procedures of the operator, in files named SKILL.md: lists them, reads one, "
                     "or searches them. Look here before a task that may have one.",
                     schema.dump()},
      std::move(skills));
}

}  // namespace carrel::tools
