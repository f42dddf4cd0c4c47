#include "cli/agent_output.h"

#include <string_view>

#include "base/utf8.h"
#include "cli/output.h"
#include "storage/events.h"

namespace carrel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTitle = 80;
constexpr std::size_t kShownLines = 8;
constexpr std::size_t kShownLine = 100;

std::string_view head(std::string_view text, std::size_t bytes) {
  while (bytes > 0 && bytes < text.size() &&
         (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) {
    --bytes;
  }
  return text.substr(0, bytes);
}

// The first lines of an answer, each on a line of its own behind a mark.
std::string shown_lines(std::string_view text) {
  std::string shown;
  std::size_t lines = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (++lines > kShownLines) {
      continue;
    }
    shown += "  | " + printable(head(line, kShownLine)) + (line.size() > kShownLine ? " ..." : "") +
             "\n";
  }
  if (lines > kShownLines) {
    shown += "  | ... " + std::to_string(lines - kShownLines) + " more lines\n";
  }
  return shown;
}

}  // namespace

std::string call_title(const agent::ToolCall& call) {
  const Json arguments = Json::parse(call.arguments, nullptr, false);
  const bool command =
      arguments.is_object() && arguments.contains("command") && arguments["command"].is_string();
  const std::string text = command ? arguments["command"].get<std::string>() : call.arguments;
  const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  const std::string_view shown = head(line, kTitle);
  std::string title = command && call.name == "exec" ? "$ " : "> " + call.name + " ";
  return printable(title + std::string(shown)) + (shown.size() < text.size() ? " ..." : "");
}

namespace {

// A model's identity as a person writes it: PROVIDER:NAME.
std::string name_of_model(const std::string& identity) {
  const Json object = Json::parse(identity, nullptr, false);
  const auto text = [&](const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() && found->is_string()
               ? found->get<std::string>()
               : std::string();
  };
  const std::string name = text("name");
  return name.empty() ? identity : text("provider") + ":" + name;
}

}  // namespace

std::string answer_title(const std::string& model, const agent::Reply& reply) {
  const std::string_view line = std::string_view(reply.text).substr(0, reply.text.find('\n'));
  const std::string_view shown = head(line, kTitle);
  std::string title = name_of_model(model) + ":";
  if (!shown.empty()) {
    title += " " + std::string(shown) + (shown.size() < reply.text.size() ? " ..." : "");
  }
  for (std::size_t i = 0; i < reply.calls.size(); ++i) {
    title += (i == 0 ? " -> " : ", ") + reply.calls[i].name;
  }
  if (reply.usage.total() > 0) {
    title += " (" + std::to_string(reply.usage.input) + " tokens in, " +
             std::to_string(reply.usage.output) + " out)";
  }
  return printable(title);
}

void AgentTranscript::said(std::string_view text) {
  const std::string harmless = filter_.filter(text);
  if (!harmless.empty()) {
    print(harmless);
    in_line_ = harmless.back() != '\n';
  }
}

void AgentTranscript::said_all() {
  const std::string rest = filter_.finish();
  in_line_ = in_line_ || (!rest.empty() && rest.back() != '\n');
  print(rest + (in_line_ ? "\n" : ""));
  in_line_ = false;
}

void AgentTranscript::asked_again(const Error& why, std::chrono::milliseconds pause) {
  print_error((in_line_ ? "\n" : "") + printable(why.to_string()) + "; once more in " +
              std::to_string(pause.count()) + " ms\n");
  in_line_ = false;
}

void AgentTranscript::calls(const agent::ToolCall& call) { print_error(call_title(call) + "\n"); }

void AgentTranscript::called(const agent::ToolCall& /*call*/, const tools::ToolResult& result) {
  print_error(shown_lines(result.failed() ? result.error : result.output));
  const std::string end = !result.summary.empty() ? result.summary
                          : result.failed()       ? "failed"
                                                  : "";
  if (!end.empty()) {
    print_error(printable(end) + "\n");
  }
  if (!result.system.empty()) {
    print_error("[" + printable(result.system) + "]\n");
  }
}

void AgentTranscript::run_event(const journal::RunEvent& event) {
  print_error(printable(journal::event_line(event)) + "\n");
}

void AgentTranscript::sandbox_event(const std::string& json) {
  print_error(printable(storage::describe_event(json)) + "\n");
}

void AgentTranscript::notice(const std::string& sentence) {
  print_error("carrel: " + printable(sentence) + "\n");
}

void AgentRecord::asked_again(const Error& why, std::chrono::milliseconds pause) {
  notices_.push_back("asked again after " + std::to_string(pause.count()) +
                     " ms: " + replace_invalid_utf8(why.to_string()));
}

void AgentRecord::calls(const agent::ToolCall& call) {
  calls_.push_back({{"tool", replace_invalid_utf8(call.name)},
                    {"arguments", replace_invalid_utf8(call.arguments)}});
}

void AgentRecord::called(const agent::ToolCall& /*call*/, const tools::ToolResult& result) {
  Json& row = calls_.back();
  row["output"] = replace_invalid_utf8(result.output);
  row["error"] = replace_invalid_utf8(result.error);
  row["system"] = replace_invalid_utf8(result.system);
  if (result.exit_code.has_value()) {
    row["exit_code"] = *result.exit_code;
  }
}

void AgentRecord::run_event(const journal::RunEvent& event) {
  if (event.kind == journal::RunEvent::Kind::kWarning) {
    notices_.push_back(replace_invalid_utf8(event.text));
  }
}

void AgentRecord::sandbox_event(const std::string& json) {
  const Json event = Json::parse(json, nullptr, false);
  if (event.is_object() && event.contains("sandbox") && event["sandbox"].is_string()) {
    sandbox_ = event["sandbox"].get<std::string>();
  }
}

void AgentRecord::notice(const std::string& sentence) {
  notices_.push_back(replace_invalid_utf8(sentence));
}

Json AgentRecord::take_calls() { return std::exchange(calls_, Json::array()); }

}  // namespace carrel::cli
