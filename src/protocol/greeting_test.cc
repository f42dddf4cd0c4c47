#include "protocol/greeting.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace carrel::protocol {
namespace {

using Data = std::array<unsigned char, kGreetingSize>;

Data written() {
  Greeting greeting;
  std::memcpy(greeting.boot_id, "01234567-89ab-cdef-0123-456789abcdef", kBootIdSize);
  greeting.landlock = 4;
  Data data{};
  write_greeting(greeting, data.data());
  return data;
}

TEST(Greeting, WhatIsWrittenIsRead) {
  const Data data = written();
  Greeting greeting;
  ASSERT_TRUE(parse_greeting(data.data(), greeting));
  EXPECT_EQ(greeting.boot(), "01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(greeting.landlock, 4U);
}

TEST(Greeting, AnythingElseIsNone) {
  Greeting greeting;
  const Data nothing{};
  EXPECT_FALSE(parse_greeting(nothing.data(), greeting));
  for (std::size_t i = 0; i < 8 + kBootIdSize; ++i) {
    for (const char c : {'\0', 'g', 'A', '/', '\n'}) {
      Data data = written();
      data.at(i) = static_cast<unsigned char>(c);
      EXPECT_FALSE(parse_greeting(data.data(), greeting)) << i << " " << static_cast<int>(c);
    }
  }
  Data data = written();
  data.back() = 0xff;
  EXPECT_FALSE(parse_greeting(data.data(), greeting));
}

}  // namespace
}  // namespace carrel::protocol
