#include "http/event_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace carrel::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Reading {
  std::vector<std::string> events;  // name|id|data
  Status status;
};

Reading read(const std::vector<std::string>& pieces, std::size_t limit = 1000) {
  Reading reading;
  EventReader reader(limit);
  for (const std::string& piece : pieces) {
    reading.status = reader.feed(piece, [&](const StreamEvent& event) -> Status {
      reading.events.push_back(event.name + "|" + event.id + "|" + event.data);
      return {};
    });
    if (!reading.status.ok()) {
      break;
    }
  }
  return reading;
}

TEST(EventReaderTest, WhatWasWrittenIsReadAgain) {
  const StreamEvent event{"7", "message", "two\nlines"};
  EXPECT_THAT(read({write_event(event)}).events, ElementsAre("message|7|two\nlines"));
}

TEST(EventReaderTest, PiecesMayBeOfAnySize) {
  const std::string text =
      "\xef\xbb\xbf"
      "event: a\r\ndata: 1\r\ndata:2\r\n\r\n:comment\rdata\r\rid: 9\ndata: x\n\n";
  std::vector<std::string> bytes;
  for (const char c : text) {
    bytes.emplace_back(1, c);
  }
  EXPECT_THAT(read({text}).events, ElementsAre("a||1\n2", "||", "|9|x"));
  EXPECT_EQ(read(bytes).events, read({text}).events);
}

TEST(EventReaderTest, EventWithoutDataOrEndIsNone) {
  EXPECT_THAT(read({"event: a\n\nid: 4\nretry: 10\n\ndata: unfinished\n"}).events, ElementsAre());
}

TEST(EventReaderTest, IdHoldsUntilThereIsAnother) {
  EXPECT_THAT(read({"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n"}).events,
              ElementsAre("|1|a", "|1|b", "||c"));
}

TEST(EventReaderTest, WhatIsKeptIsBounded) {
  EXPECT_THAT(read({std::string(11, 'x')}, 10).status.error().message, HasSubstr("longer than 10"));
  EXPECT_FALSE(read({"data: 1234\ndata: 1234\ndata: 1234\n"}, 12).status.ok());
  EXPECT_FALSE(read({"data:", std::string(20, 'x')}, 12).status.ok());
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += "data: 1\n\n";
  }
  EXPECT_EQ(read({many}, 12).events.size(), 1000U);
}

TEST(EventReaderTest, ErrorOfTheSinkComesBack) {
  EventReader reader(100);
  const Status status = reader.feed("data: 1\n\n", [](const StreamEvent&) -> Status {
    return Error{Code::kInvalid, 0, "enough", {}};
  });
  EXPECT_EQ(status.error().message, "enough");
}

}  // namespace
}  // namespace carrel::http
