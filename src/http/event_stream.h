#pragma once

#include <string>
#include <string_view>

namespace carrel::http {

// One event of a stream of events (text/event-stream). Data of several lines becomes several
// fields, which a reader joins again; id and name have none.
struct StreamEvent {
  std::string id;    // empty: none
  std::string name;  // empty: "message"
  std::string data;
};

std::string write_event(const StreamEvent& event);

// What keeps a connection from looking dead.
inline constexpr std::string_view kNoEvent = ":\n\n";

}  // namespace carrel::http
