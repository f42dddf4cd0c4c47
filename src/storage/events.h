#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/home.h"

namespace carrel::storage {

// What happened to sandboxes, one JSON object a line in CARREL_HOME/events.jsonl. A line is one
// write, so lines of several processes never mix. The file is cut to its newer half when it grows
// beyond its limit.
struct Event {
  std::string json;  // one object, no newline
};

Event start_event(const std::string& id, std::string_view image, std::string_view workspace);
Event command_event(const std::string& id, std::string_view command);
struct CommandOutcome {
  int exit_code = 0;
  std::string cwd;
  std::uint64_t stdout_chars = 0;  // without one final newline
  std::size_t command_bytes = 0;
  std::string reason;
  std::int64_t duration_ms = 0;
  bool shell_restarted = false;
};
Event result_event(const std::string& id, const CommandOutcome& outcome);
// A limit was reached: a security event.
Event limit_event(const std::string& id, std::string_view limit, std::uint64_t allowed,
                  std::uint64_t used);
// A path that was refused: a security event.
Event path_event(const std::string& id, std::string_view path, std::string_view reason);
// What was done to files from outside.
Event file_event(const std::string& id, std::string_view action, std::string_view path,
                 std::string_view reason);
Event stop_event(const std::string& id, std::string_view reason);
Event pause_event(const std::string& id, std::string_view reason);
Event resume_event(const std::string& id);

// Too much of something within a short time.
struct AlertFacts {
  std::string_view kind;
  std::uint64_t count = 0;
  std::int64_t window_ms = 0;
  std::string_view last = {};  // what the last of it was about
};
Event alert_event(const std::string& id, const AlertFacts& facts);

// Best effort: a full disk does not stop a command.
void add_event(const Home& home, const Event& event);

// The events of one sandbox, oldest first, as JSON lines.
std::vector<std::string> events_of(const Home& home, const std::string& id);

// An event line as a person reads it.
std::string describe_event(std::string_view json);

}  // namespace carrel::storage
