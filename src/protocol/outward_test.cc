#include "protocol/outward.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace carrel::protocol {
namespace {

std::string written(const Outward& outward) {
  std::array<unsigned char, kOutwardSize> data{};
  write_outward(outward, data.data());
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

TEST(Outward, IsReadAsItWasWritten) {
  const Outward kTable[] = {{OutwardKind::kRedirected, 4, {198, 18, 0, 7}, 443},
                            {OutwardKind::kRedirected, 6, {0xfd, 0, 0, 0, 0, 0, 0, 1}, 22},
                            {OutwardKind::kProxy, 0, {}, 0},
                            {OutwardKind::kDns, 0, {}, 0},
                            {OutwardKind::kLookups, 0, {}, 0}};
  for (const Outward& outward : kTable) {
    Outward read;
    ASSERT_TRUE(parse_outward(written(outward), read));
    EXPECT_EQ(written(read), written(outward));
    EXPECT_EQ(read.port, outward.port);
  }
}

TEST(Outward, WhatIsNoneIsRefused) {
  const Outward kTable[] = {{OutwardKind{}, 4, {1, 2, 3, 4}, 80},
                            {static_cast<OutwardKind>(5), 0, {}, 0},
                            {OutwardKind::kRedirected, 5, {}, 80},
                            {OutwardKind::kRedirected, 0, {}, 80},
                            {OutwardKind::kRedirected, 4, {1, 2, 3}, 0},
                            {OutwardKind::kProxy, 4, {1, 2, 3, 4}, 80},
                            {OutwardKind::kDns, 0, {}, 53},
                            {OutwardKind::kDns, 0, {1}, 0},
                            {OutwardKind::kRedirected, 4, {1, 2, 3, 4, 5}, 80}};
  Outward read;
  for (const Outward& outward : kTable) {
    EXPECT_FALSE(parse_outward(written(outward), read)) << static_cast<int>(outward.kind);
  }
  const std::string good = written({OutwardKind::kDns, 0, {}, 0});
  EXPECT_FALSE(parse_outward(good + "x", read));
  EXPECT_FALSE(parse_outward(good.substr(1), read));
  EXPECT_FALSE(parse_outward("", read));
}

}  // namespace
}  // namespace carrel::protocol
