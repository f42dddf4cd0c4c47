#include "tools/exec.h"

#include <array>
#include <nlohmann/json.hpp>

#include "storage/home.h"
#include "tools/danger.h"
#include "tools/observation.h"

namespace carrel::tools {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOutputFolder = ".exec";
constexpr std::size_t kIdDigits = 12;

std::string how_output_is_cut() {
  return "Of long output you see the first and the last " + std::to_string(kMostLines / 2) +
         " lines, " + std::to_string(kLongestLine) + " bytes of each line and " +
         std::to_string(kLongestObservation) + " characters in all; every cut is marked";
}

// In front of how it is cut.
constexpr std::string_view kBothStreams =
    "What it writes to stdout and stderr comes back together, in the order in which it came. ";

std::string where_it_is_kept(const FileStore* files) {
  return files == nullptr ? "."
                          : ", and the whole output is then in the file below /workspace/" +
                                std::string(kOutputFolder) + " that is named.";
}

struct Language {
  std::string_view name;
  std::string_view program;
  std::string_view flag;
};
constexpr std::array<Language, 3> kLanguages = {
    {{"python", "python3", "-c"}, {"bash", "bash", "-c"}, {"node", "node", "-e"}}};
// A word of a program's arguments ends at 128 KiB.
constexpr std::size_t kLongestCode = 120U << 10;

// The same line that the log of a sandbox has.
std::string summary_of(const sandbox::ExecResult& result) {
  const std::string_view text = result.standard_output;
  std::size_t characters = 0;
  for (const char c : text) {
    characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1U : 0U;
  }
  characters -= text.ends_with('\n') ? 1U : 0U;
  std::string line = "exit " + std::to_string(result.exit_code) + ", stdout " +
                     std::to_string(characters) + " chars";
  return line + (result.cwd.empty() ? "" : ", cwd " + result.cwd);
}

std::chrono::milliseconds timeout_of(const Json& arguments) {
  return std::chrono::seconds(arguments.value("timeout", kDefaultTimeout));
}

Json timeout_schema() {
  return {{"type", "integer"},
          {"minimum", 1},
          {"maximum", kLongestTimeout},
          {"description",
           "seconds after which it is ended; " + std::to_string(kDefaultTimeout) + " by default"}};
}

class Exec final : public Tool {
 public:
  Exec(ToolDefinition definition, Commands& commands, FileStore* files)
      : Tool(std::move(definition)), commands_(commands), files_(files) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    sandbox::CommandRequest request;
    request.shell_text = arguments.at("command").get<std::string>();
    request.merged = true;
    request.timeout = timeout_of(arguments);
    CARREL_ASSIGN(const sandbox::ExecResult result, commands_.run(request, cancel));
    ToolResult answer = show_end(result, files_);
    answer.system = advice_about(request.shell_text);
    if (result.shell_restarted) {
      answer.system += (answer.system.empty() ? "" : "\n") +
                       std::string("the shell was started anew: its folder and variables are lost");
    }
    return answer;
  }

 private:
  Commands& commands_;
  FileStore* files_;
};

class RunCode final : public Tool {
 public:
  RunCode(ToolDefinition definition, Commands& commands, FileStore* files)
      : Tool(std::move(definition)), commands_(commands), files_(files) {}

  Result<ToolResult> call(const Json& arguments, const Cancel& cancel) override {
    const std::string language = arguments.value("language", "python");
    const std::string code = arguments.at("code").get<std::string>();
    if (code.size() > kLongestCode || code.find('\0') != std::string::npos) {
      return ToolResult{.error = "the code is longer than " + std::to_string(kLongestCode) +
                                 " bytes, or has a NUL byte in it"};
    }
    for (const Language& known : kLanguages) {
      if (known.name == language) {
        sandbox::CommandRequest request;
        request.arguments = {std::string(known.program), std::string(known.flag), code};
        request.merged = true;
        request.timeout = timeout_of(arguments);
        CARREL_ASSIGN(const sandbox::ExecResult result, commands_.run(request, cancel));
        return show_end(result, files_);
      }
    }
    return ToolResult{.error = "there is no language '" + language + "'"};
  }

 private:
  Commands& commands_;
  FileStore* files_;
};

}  // namespace

ToolResult show_end(const sandbox::ExecResult& result, FileStore* kept) {
  const std::string whole = render(result);
  Observation seen = cut_output(whole);
  const Observation shorter = cut_observation(seen.text);
  ToolResult answer;
  std::string text = shorter.text;
  if (seen.cut || shorter.cut || result.truncated) {
    std::string note = "[the output is cut]";
    if (kept != nullptr) {
      const std::string path =
          std::string(kOutputFolder) + "/" + storage::random_hex(kIdDigits) + ".out";
      const Status stored = kept->write(path, whole, {});
      note = stored.ok()
                 ? "[the whole output is in /workspace/" + path +
                       (result.truncated ? ", but for what is marked there" : "") + "]"
                 : "[the output is cut, and could not be kept: " + stored.error().to_string() + "]";
    }
    text += (text.empty() || text.back() == '\n' ? "" : "\n") + note;
  }
  (result.success() ? answer.output : answer.error) = std::move(text);
  answer.exit_code = result.exit_code;
  answer.summary = summary_of(result);
  return answer;
}

std::unique_ptr<Tool> make_exec(Commands& commands, FileStore* files) {
  const std::string state =
      commands.state() == Commands::State::kKept
          ? "Folder, variables and functions stay from one command to the next. "
          : "Each command has a shell of its own: folder and variables do not stay. ";
  const Json schema = {
      {"type", "object"},
      {"properties",
       {{"command", {{"type", "string"}, {"description", "text for bash, executed as it is"}}},
        {"timeout", timeout_schema()}}},
      {"required", {"command"}},
      {"additionalProperties", false}};
  return std::make_unique<Exec>(
      ToolDefinition{"exec",
                     "Runs a command for bash " + commands.where() + ". " + state +
                         std::string(kBothStreams) + how_output_is_cut() + where_it_is_kept(files),
                     schema.dump()},
      commands, files);
}

std::unique_ptr<Tool> make_run_code(Commands& commands, FileStore* files) {
  Json names = Json::array();
  for (const Language& language : kLanguages) {
    names.push_back(language.name);
  }
  const Json schema = {
      {"type", "object"},
      {"properties",
       {{"code", {{"type", "string"}, {"description", "source text"}}},
        {"language", {{"type", "string"}, {"enum", names}, {"description", "python by default"}}},
        {"timeout", timeout_schema()}}},
      {"required", {"code"}},
      {"additionalProperties", false}};
  return std::make_unique<RunCode>(
      ToolDefinition{"run_code",
                     "Runs source text " + commands.where() +
                         ", as a process of its own in /workspace. " + std::string(kBothStreams) +
                         how_output_is_cut() + where_it_is_kept(files),
                     schema.dump()},
      commands, files);
}

}  // namespace carrel::tools
