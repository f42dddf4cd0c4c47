#include "tools/cancel.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace carrel::tools {
namespace {

using namespace std::chrono_literals;

TEST(CancelTest, AskingAndItsTimeEndIt) {
  const Cancel asked;
  EXPECT_FALSE(asked.asked());
  asked.ask();
  EXPECT_TRUE(asked.asked());
  EXPECT_FALSE(asked.expired());
  const Cancel timed;
  timed.set_deadline(std::chrono::steady_clock::now() + 50ms);
  EXPECT_FALSE(timed.asked());
  pollfd look{timed.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 5000), 1);
  EXPECT_TRUE(timed.asked());
  EXPECT_TRUE(timed.expired());
  const Cancel late;
  late.set_deadline({});
  EXPECT_TRUE(late.expired());
}

}  // namespace
}  // namespace carrel::tools
