#include "http/event_stream.h"

namespace carrel::http {
namespace {

// A line break in one of these would begin a field of its own.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    line += c == '\n' || c == '\r' || c == '\0' ? ' ' : c;
  }
  return line;
}

}  // namespace

std::string write_event(const StreamEvent& event) {
  std::string text;
  if (!event.id.empty()) {
    text += "id: " + one_line(event.id) + "\n";
  }
  if (!event.name.empty()) {
    text += "event: " + one_line(event.name) + "\n";
  }
  std::string_view rest = event.data;
  for (;;) {
    const std::size_t end = rest.find_first_of("\r\n");
    text += "data: ";
    text += rest.substr(0, end);
    text += '\n';
    if (end == std::string_view::npos) {
      break;
    }
    const bool both = rest[end] == '\r' && end + 1 < rest.size() && rest[end + 1] == '\n';
    rest.remove_prefix(end + (both ? 2 : 1));
  }
  return text + "\n";
}

}  // namespace carrel::http
