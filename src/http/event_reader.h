#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/event_stream.h"

namespace carrel::http {

// Takes the events out of a stream of them (text/event-stream) that somebody else writes, in pieces
// of any size. What it keeps is bounded: an event whose data, or a line that, is longer than
// `limit` is an error (kResource), and nothing can be read after it.
//
// An event without data is none, comments are dropped, and what is left of an event when the stream
// ends never was one.
class EventReader {
 public:
  using Sink = std::function<Status(const StreamEvent& event)>;

  explicit EventReader(std::size_t limit) : limit_(limit) {}

  // An error of the sink ends it, and comes back.
  Status feed(std::string_view bytes, const Sink& sink);

 private:
  Status take_line(const Sink& sink);
  Status too_long() const;

  std::size_t limit_;
  std::string line_;
  bool at_start_ = true;       // of the stream, where a byte order mark may stand
  bool after_return_ = false;  // a line feed that follows belongs to it
  bool has_data_ = false;
  StreamEvent event_;
};

}  // namespace carrel::http
