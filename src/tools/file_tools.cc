#include "tools/file_tools.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "tools/observation.h"

namespace carrel::tools {
namespace {

using Json = nlohmann::json;
using sandbox::WriteOptions;

constexpr std::size_t kMostRead = 1U << 20;
constexpr std::size_t kMostFilesListed = 1000;
constexpr std::string_view kPage = "index.html";

using Action = Result<ToolResult> (*)(FileStore& files, const std::string& path,
                                      const Json& arguments);

// Says where a page can be looked at.
std::string page_note(const FileStore& files, const std::string& path) {
  return path == kPage && !files.preview().empty() ? "\npreview: " + files.preview() : "";
}

Result<ToolResult> create_file(FileStore& files, const std::string& path, const Json& arguments) {
  const std::string permissions = arguments.value("permissions", "644");
  unsigned mode = 0;
  const char* end = permissions.data() + permissions.size();
  const auto [stop, error] = std::from_chars(permissions.data(), end, mode, 8);
  if (error != std::errc() || stop != end || mode > 0777) {
    return ToolResult{.error = "'permissions' are octal digits up to 777, such as 644"};
  }
  CARREL_TRY(files.write(path, arguments.at("file_contents").get<std::string>(),
                         {.old = WriteOptions::Old::kRefused, .mode = mode}));
  return ToolResult{.output = "created '" + path + "'" + page_note(files, path)};
}

Result<ToolResult> rewrite(FileStore& files, const std::string& path, const Json& arguments) {
  CARREL_TRY(files.write(path, arguments.at("file_contents").get<std::string>(),
                         {.old = WriteOptions::Old::kNeeded, .mode = {}}));
  return ToolResult{.output = "rewrote '" + path + "'" + page_note(files, path)};
}

Result<ToolResult> str_replace(FileStore& files, const std::string& path, const Json& arguments) {
  const std::string old_text = arguments.at("old_str").get<std::string>();
  const std::string new_text = arguments.at("new_str").get<std::string>();
  CARREL_ASSIGN(const std::uint64_t line, files.replace(path, old_text, new_text));
  return ToolResult{.output = "replaced on line " + std::to_string(line) + " of '" + path + "'"};
}

Result<ToolResult> delete_file(FileStore& files, const std::string& path,
                               const Json& /*arguments*/) {
  CARREL_TRY(files.remove(path));
  return ToolResult{.output = "deleted '" + path + "'"};
}

Result<ToolResult> read_file(FileStore& files, const std::string& path, const Json& arguments) {
  sandbox::ReadRange range;
  if (arguments.contains("start_line") || arguments.contains("end_line")) {
    const std::uint64_t first = arguments.value("start_line", std::uint64_t{1});
    range.unit = sandbox::ReadRange::Unit::kLines;
    range.from = first;
    if (arguments.contains("end_line")) {
      const std::uint64_t last = arguments.at("end_line").get<std::uint64_t>();
      if (last < first) {
        return ToolResult{.error = "'end_line' is before 'start_line'"};
      }
      range.count = last - first + 1;
    }
  }
  CARREL_ASSIGN(const FileStore::Text text, files.read(path, range, kMostRead));
  ToolResult result{.output = replace_invalid_utf8(text.text)};
  if (text.cut) {
    result.system = "the file is longer than what is shown: give a range of lines";
  }
  return result;
}

Result<ToolResult> list_files(FileStore& files, const std::string& path,
                              const Json& /*arguments*/) {
  CARREL_ASSIGN(const std::vector<sandbox::FileInfo> found, files.list(path, kMostFilesListed));
  ToolResult result;
  for (const sandbox::FileInfo& info : found) {
    const bool folder = info.kind == protocol::FileKind::kDirectory;
    result.output += replace_invalid_utf8(info.path) +
                     (folder ? "/" : "  " + std::to_string(info.size) + " bytes") + "\n";
  }
  if (found.size() >= kMostFilesListed) {
    result.system = "there is more: the first " + std::to_string(kMostFilesListed) + " are listed";
  }
  return result;
}

struct Row {
  std::string_view name;
  std::string_view description;
  std::string_view properties;  // beside file_path
  std::string_view required;
  Action action;
};

constexpr std::array<Row, 6> kRows = {{
    {"create_file",
     "Creates a file, with its folders. It must not exist. The contents may be empty.",
     R"("file_contents":{"type":"string"},
        "permissions":{"type":"string","description":"octal, 644 by default"})",
     R"("file_path","file_contents")", create_file},
    {"str_replace",
     "Replaces a text in a file by another, which may be empty. The old text has to occur exactly "
     "once; blanks and tabs count.",
     R"("old_str":{"type":"string","minLength":1},"new_str":{"type":"string"})",
     R"("file_path","old_str","new_str")", str_replace},
    {"full_file_rewrite", "Replaces the whole contents of a file, which must exist.",
     R"("file_contents":{"type":"string"})", R"("file_path","file_contents")", rewrite},
    {"delete_file", "Deletes a file.", "", R"("file_path")", delete_file},
    {"read_file", "Reads a file, or the lines from start_line to end_line, counted from 1.",
     R"("start_line":{"type":"integer","minimum":1},"end_line":{"type":"integer","minimum":1})",
     R"("file_path")", read_file},
    {"list_files",
     "Lists the files of the workspace, or of a folder in it. What tools fill by themselves "
     "(node_modules, .git, build and the like) and binary files are left out.",
     "", "", list_files},
}};

class FileTool final : public Tool {
 public:
  FileTool(ToolDefinition definition, const Row& row, FileStore& files)
      : Tool(std::move(definition)), row_(row), files_(files) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    if (cancel.asked()) {
      return cancelled();
    }
    CARREL_ASSIGN(const std::string path, workspace_path(arguments.value("file_path", ".")));
    if (path == "." && row_.action != list_files) {
      return ToolResult{.error = "'file_path' is the workspace itself, not a file in it"};
    }
    return row_.action(files_, path, arguments);
  }

 private:
  const Row& row_;
  FileStore& files_;
};

}  // namespace

std::vector<std::string> file_tool_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
  }
  return names;
}

std::unique_ptr<Tool> make_file_tool(const std::string& name, FileStore& files) {
  for (const Row& row : kRows) {
    if (row.name == name) {
      const std::string properties(row.properties);
      const std::string schema =
          R"({"type":"object","properties":{"file_path":{"type":"string","description":)"
          R"("relative to /workspace"})" +
          (properties.empty() ? "" : "," + properties) + R"(},"required":[)" +
          std::string(row.required) + R"(],"additionalProperties":false})";
      return std::make_unique<FileTool>(
          ToolDefinition{name, std::string(row.description) + " Works on " + files.place() + ".",
                         Json::parse(schema).dump()},
          row, files);
    }
  }
  return nullptr;
}

}  // namespace carrel::tools
