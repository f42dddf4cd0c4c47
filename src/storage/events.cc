#include "storage/events.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json_writer.h"
#include "storage/state.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::ordered_json;

constexpr char kFile[] = "events.jsonl";
constexpr std::size_t kLimit = 16U << 20;
constexpr std::size_t kTitle = 80;

// JSON escapes every control character, so a command cannot write a line of its own.
JsonWriter begin_event(const std::string& id, std::string_view kind) {
  JsonWriter object(JsonWriter::Characters::kAscii);
  object.open_object().field("time_ms", wall_clock_ms()).field("event", kind).field("sandbox", id);
  return object;
}

Event finish(JsonWriter& object) { return {std::move(object.close_object()).text()}; }

Result<std::string> read_events(const Home& home) {
  CARREL_ASSIGN(const UniqueFd file, open_at(home.directory(), kFile, O_RDONLY | O_NOFOLLOW));
  return read_all(file.get(), 4 * kLimit);
}

void cut(const Home& home) {
  auto text = read_events(home);
  if (!text.ok()) {
    return;
  }
  std::size_t half = text.value().find('\n', text.value().size() / 2);
  if (half != std::string::npos) {
    (void)replace_file_at(home.directory(), kFile, std::string_view(text.value()).substr(half + 1),
                          0600);
  }
}

}  // namespace

Event start_event(const std::string& id, std::string_view image, std::string_view workspace) {
  JsonWriter object = begin_event(id, "start");
  object.field("image", image);
  object.field("workspace", workspace);
  return finish(object);
}

Event command_event(const std::string& id, std::string_view command) {
  JsonWriter object = begin_event(id, "command");
  std::string_view line = command.substr(0, command.find('\n'));
  object.field("command", line.substr(0, kTitle));
  object.field("command_bytes", command.size());
  object.field("cut", line.size() > kTitle || line.size() < command.size());
  return finish(object);
}

Event result_event(const std::string& id, const CommandOutcome& outcome) {
  JsonWriter object = begin_event(id, "result");
  object.field("exit_code", outcome.exit_code);
  object.field("stdout_chars", outcome.stdout_chars);
  object.field("cwd", outcome.cwd);
  object.field("command_bytes", outcome.command_bytes);
  object.field("duration_ms", outcome.duration_ms);
  object.field("reason", outcome.reason);
  object.field("shell_restarted", outcome.shell_restarted);
  return finish(object);
}

Event limit_event(const std::string& id, std::string_view limit, std::uint64_t allowed,
                  std::uint64_t used) {
  JsonWriter object = begin_event(id, "limit");
  object.field("limit", limit);
  object.field("allowed", allowed);
  object.field("used", used);
  return finish(object);
}

Event path_event(const std::string& id, std::string_view path, std::string_view reason) {
  JsonWriter object = begin_event(id, "security");
  object.field("path", path.substr(0, kTitle));
  object.field("reason", reason);
  return finish(object);
}

Event file_event(const std::string& id, std::string_view action, std::string_view path,
                 std::string_view reason) {
  JsonWriter object = begin_event(id, "file");
  object.field("action", action);
  object.field("path", path.substr(0, kTitle));
  object.field("reason", reason);
  return finish(object);
}

Event stop_event(const std::string& id, std::string_view reason) {
  JsonWriter object = begin_event(id, "stop");
  object.field("reason", reason);
  return finish(object);
}

Event pause_event(const std::string& id, std::string_view reason) {
  JsonWriter object = begin_event(id, "pause");
  object.field("reason", reason);
  return finish(object);
}

Event resume_event(const std::string& id) {
  JsonWriter object = begin_event(id, "resume");
  return finish(object);
}

Event alert_event(const std::string& id, const AlertFacts& facts) {
  JsonWriter object = begin_event(id, "alert");
  object.field("kind", facts.kind);
  object.field("count", facts.count);
  object.field("window_ms", facts.window_ms);
  object.field("last", facts.last.substr(0, kTitle));
  return finish(object);
}

void add_event(const Home& home, const Event& event) {
  auto file = open_at(home.directory(), kFile, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
  if (!file.ok()) {
    return;
  }
  const std::string line = event.json + "\n";
  if (::write(file.value().get(), line.data(), line.size()) < 0) {
    return;
  }
  struct stat info{};
  if (::fstat(file.value().get(), &info) == 0 && static_cast<std::size_t>(info.st_size) > kLimit &&
      ::flock(file.value().get(), LOCK_EX | LOCK_NB) == 0) {
    cut(home);
  }
}

std::vector<std::string> events_of(const Home& home, const std::string& id) {
  std::vector<std::string> lines;
  auto text = read_events(home);
  if (!text.ok()) {
    return lines;
  }
  const std::string wanted = "\"sandbox\":\"" + id + "\"";
  std::string_view rest = text.value();
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find(wanted) != std::string_view::npos) {
      lines.emplace_back(line);
    }
  }
  return lines;
}

std::string describe_event(std::string_view line) {
  Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) {
    return {};
  }
  const std::string kind = object.value("event", "");
  const std::string id = object.value("sandbox", "").substr(0, 12);
  if (kind == "start") {
    return "sandbox " + id + " started (image " + object.value("image", "") + ", workspace " +
           object.value("workspace", "") + ")";
  }
  if (kind == "command") {
    return "$ " + object.value("command", "") + (object.value("cut", false) ? " ..." : "");
  }
  if (kind == "result") {
    std::string text = "exit " + std::to_string(object.value("exit_code", 0)) + ", stdout " +
                       std::to_string(object.value("stdout_chars", 0)) + " chars";
    if (!object.value("cwd", "").empty()) {
      text += ", cwd " + object.value("cwd", "");
    }
    return text;
  }
  if (kind == "limit") {
    return "limit reached: " + object.value("limit", "") + " (allowed " +
           std::to_string(object.value("allowed", std::uint64_t{0})) + ", used " +
           std::to_string(object.value("used", std::uint64_t{0})) + ")";
  }
  if (kind == "security") {
    return "refused: " + object.value("reason", "") + " ('" + object.value("path", "") + "')";
  }
  if (kind == "file") {
    const std::string reason = object.value("reason", "");
    return "file " + object.value("action", "") + " '" + object.value("path", "") + "'" +
           (reason.empty() ? "" : ": " + reason);
  }
  if (kind == "pause") {
    return "sandbox " + id + " paused (" + object.value("reason", "") + ")";
  }
  if (kind == "resume") {
    return "sandbox " + id + " resumed";
  }
  if (kind == "alert") {
    return "alert: " + std::to_string(object.value("count", std::uint64_t{0})) + " times " +
           object.value("kind", "") + " in " +
           std::to_string(object.value("window_ms", std::int64_t{0}) / 1000) + " s (last: '" +
           object.value("last", "") + "')";
  }
  if (kind == "stop") {
    return "sandbox " + id + " stopped (" + object.value("reason", "") + ")";
  }
  return {};
}

}  // namespace carrel::storage
