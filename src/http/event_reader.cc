#include "http/event_reader.h"

namespace carrel::http {

namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

Status EventReader::too_long() const {
  return Error{Code::kResource,
               0,
               "an event of the stream is longer than " + std::to_string(limit_) + " bytes",
               {}};
}

// A field, a comment, or the empty line that ends an event.
Status EventReader::take_line(const Sink& sink) {
  std::string_view line = line_;
  if (at_start_ && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  at_start_ = false;
  if (line.empty()) {
    const bool whole = has_data_;
    has_data_ = false;
    StreamEvent event = std::move(event_);
    event_ = {};
    event_.id = event.id;  // holds until there is another
    return whole ? sink(event) : Status();
  }
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  std::string_view value =
      colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) {
    value.remove_prefix(1);
  }
  if (name == "data") {
    if (event_.data.size() + value.size() + 1 > limit_) {
      return too_long();
    }
    if (has_data_) {
      event_.data += '\n';
    }
    event_.data += value;
    has_data_ = true;
  } else if (name == "event") {
    event_.name = value;
  } else if (name == "id" && value.find('\0') == std::string_view::npos) {
    event_.id = value;
  }
  return {};
}

Status EventReader::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > limit_) {
      return too_long();
    }
    line_ += part;
    if (end == std::string_view::npos) {
      return {};
    }
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    Status taken = take_line(sink);
    line_.clear();
    CARREL_TRY(taken);
  }
  return {};
}

}  // namespace carrel::http
