#include "cli/notice.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "backends/native/scope.h"
#include "cli/output.h"

namespace carrel::cli {

void say_what_is_weaker(const Context& context, const native::Enforcement& enforcement) {
  if (context.json() || ::isatty(STDERR_FILENO) == 0) {
    return;
  }
  // For a long-lived one systemd was asked already.
  const bool can_ask = enforcement.find("logout") == nullptr && native::can_ask_for_scope();
  for (const native::Enforcement::Row& row : enforcement.rows) {
    if (row.by == "watchdog" || row.by == "affinity") {
      print_error("carrel: the " + row.name + " limit is held by " + row.by +
                  " only: " + printable(row.note) +
                  (can_ask ? " (--require " + row.name + " asks systemd for a scope)" : "") + "\n");
    } else if (row.name.starts_with("mount ") && !row.note.starts_with("hidden in it") &&
               !row.note.empty()) {
      // What is hidden was said when it was opened.
      print_error("carrel: " + row.name + ": " +
                  printable(row.note.substr(0, row.note.find("; hidden in it"))) + "\n");
    } else if (row.name == native::kKnownFlaws || row.name == native::kVerified ||
               (row.name == "acceleration" && !row.note.empty()) ||
               (row.name == native::kStartedFrom && !row.note.empty())) {
      print_error("carrel: " + printable(row.note) + "\n");
    } else if (row.name == "logout" && !row.note.empty()) {
      print_error("carrel: " + printable(row.note) + "\n");
    }
  }
}

native::Enforcement enforcement_from_json(const std::string& text) {
  native::Enforcement enforcement;
  const nlohmann::json rows = nlohmann::json::parse(text, nullptr, false);
  if (!rows.is_array()) {
    return enforcement;
  }
  auto word = [](const nlohmann::json& row, const char* name) {
    auto found = row.find(name);
    return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  for (const nlohmann::json& row : rows) {
    if (row.is_object()) {
      enforcement.rows.push_back({word(row, "name"), word(row, "by"), word(row, "note")});
    }
  }
  return enforcement;
}

}  // namespace carrel::cli
