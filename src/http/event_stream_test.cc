#include "http/event_stream.h"

#include <gtest/gtest.h>

namespace carrel::http {
namespace {

TEST(EventStream, EventHasItsFields) {
  EXPECT_EQ(write_event({"7", "stdout", "{}"}), "id: 7\nevent: stdout\ndata: {}\n\n");
  EXPECT_EQ(write_event({"", "", ""}), "data: \n\n");
}

TEST(EventStream, LinesOfDataAreFieldsOfTheirOwn) {
  EXPECT_EQ(write_event({"", "", "a\nb\r\nc\rd"}), "data: a\ndata: b\ndata: c\ndata: d\n\n");
}

TEST(EventStream, NothingInAnEventBeginsAnother) {
  EXPECT_EQ(write_event({"1\n\nid: 2", "x\revent: y", "z"}),
            "id: 1  id: 2\nevent: x event: y\ndata: z\n\n");
}

}  // namespace
}  // namespace carrel::http
