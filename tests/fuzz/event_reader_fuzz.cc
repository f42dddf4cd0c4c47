// Streams of events of strangers: the same bytes in other pieces give the same events, what is kept
// is bounded, and an event that was read and written is read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "http/event_reader.h"

namespace {

using carrel::Status;
using carrel::http::EventReader;
using carrel::http::StreamEvent;

constexpr std::size_t kLimit = 64;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

struct Reading {
  std::vector<StreamEvent> events;
  bool ok = true;
};

Reading read(std::string_view bytes, std::size_t piece, std::size_t limit) {
  Reading reading;
  EventReader reader(limit);
  while (!bytes.empty() && reading.ok) {
    const std::string_view part = bytes.substr(0, piece);
    reading.ok = reader
                     .feed(part,
                           [&](const StreamEvent& event) -> Status {
                             require(event.data.size() <= limit && event.name.size() <= limit);
                             reading.events.push_back(event);
                             return {};
                           })
                     .ok();
    bytes.remove_prefix(part.size());
  }
  return reading;
}

bool same(const StreamEvent& one, const StreamEvent& other) {
  return one.id == other.id && one.name == other.name && one.data == other.data;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Reading whole = read(text, text.size() + 1, kLimit);
  const Reading pieces = read(text, 3, kLimit);
  require(whole.ok == pieces.ok && whole.events.size() == pieces.events.size());
  for (std::size_t i = 0; i < whole.events.size(); ++i) {
    require(same(whole.events[i], pieces.events[i]));
    StreamEvent event = whole.events[i];
    if (event.name.find('\0') != std::string::npos || event.name.starts_with(' ') ||
        event.id.starts_with(' ')) {
      continue;
    }
    const Reading again = read(carrel::http::write_event(event), 5, 4 * kLimit);
    require(again.events.size() == 1 && same(again.events[0], event));
  }
  return 0;
}
