#include "policy/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>

namespace carrel::policy {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;

TEST(SizeTest, GoodSizesAreRead) {
  const struct {
    std::string_view text;
    std::uint64_t bytes;
  } kTable[] = {
      {"512m", 512 * kMiB},
      {"1g", kGiB},
      {"1.5g", 1536 * kMiB},
      {"1048576", kMiB},
      {"64k", 65536},
      {"2GiB", 2 * kGiB},
      {"1t", 1024 * kGiB},
      {"1b", 1},
      {"1", 1},
      {"0.5m", 524288},
      {"100MB", 100 * kMiB},
      {"007k", 7168},
      {"1.0000001k", 1024},
      {"8388607t", 8388607ULL * 1024 * kGiB},
      {"9223372036854775807", INT64_MAX},
  };
  for (const auto& row : kTable) {
    const auto result = parse_size({"memory", row.text});
    ASSERT_TRUE(result.ok()) << row.text << ": " << result.error().to_string();
    EXPECT_EQ(result.value(), row.bytes) << row.text;
  }
}

TEST(SizeTest, BadSizesAreRefusedWithTheOptionAndTheText) {
  const std::string huge(1 << 16, '9');
  const std::string_view kTable[] = {
      "",
      "-1",
      "-512m",
      "+1g",
      "1.5.2g",
      "1..5g",
      ".5g",
      "1.g",
      "g",
      "m512",
      "1x",
      "1mm",
      "1 g",
      " 1g",
      "1g ",
      "1\ng",
      "0x10",
      "1e3",
      "1e3m",
      "nan",
      "inf",
      "Infinity",
      "1,5g",
      "1.5",
      "1_000",
      "１g",
      "1\xff",
      "8388608t",
      "9223372036854775808",
      "1p",
      "none",
      "unlimited",
      "1.1234567890123456789g",
      huge,
      std::string_view("1\0g", 3),
      std::string_view("\0", 1),
  };
  for (const std::string_view text : kTable) {
    const auto result = parse_size({"--memory", text});
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, Code::kInvalid);
    EXPECT_EQ(result.error().message.rfind("--memory '", 0), 0U) << result.error().message;
    EXPECT_EQ(result.error().to_string().find('\n'), std::string::npos);
    EXPECT_LT(result.error().to_string().size(), 200U);
  }
}

TEST(SizeTest, ZeroIsNotASize) {
  for (const std::string_view text : {"0", "0m", "0.0g", "00", "0.0001k"}) {
    const auto result = parse_size({"--memory", text});
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(result.error().message, HasSubstr("cannot be zero"));
  }
}

TEST(SizeTest, NegativeSaysSo) {
  EXPECT_THAT(parse_size({"--memory", "-5m"}).error().message, HasSubstr("cannot be negative"));
}

TEST(SizeTest, FormattedSizesReadBack) {
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{1023}, std::uint64_t{1024}, 6 * kMiB,
        1536 * kMiB, kGiB + 1, 3 * 1024 * kGiB, 4096 * 1024 * kGiB}) {
    const auto result = parse_size({"x", format_size(bytes)});
    ASSERT_TRUE(result.ok()) << bytes;
    EXPECT_EQ(result.value(), bytes);
  }
  EXPECT_EQ(format_size(512 * kMiB), "512m");
  EXPECT_EQ(format_size(1536 * kMiB), "1536m");
  EXPECT_EQ(format_size(0), "0");
}

TEST(DurationTest, GoodDurationsAreRead) {
  const struct {
    std::string_view text;
    std::int64_t milliseconds;
  } kTable[] = {{"60", 60'000},    {"1.5", 1500}, {"500ms", 500},     {"2m", 120'000},
                {"1h", 3'600'000}, {"0.001", 1},  {"90s", 90'000},    {"1d", 86'400'000},
                {"1ms", 1},        {"1.9ms", 1},  {"0.5h", 1'800'000}};
  for (const auto& row : kTable) {
    const auto result = parse_duration({"timeout", row.text});
    ASSERT_TRUE(result.ok()) << row.text << ": " << result.error().to_string();
    EXPECT_EQ(result.value().count(), row.milliseconds) << row.text;
  }
}

TEST(DurationTest, BadDurationsAreRefused) {
  for (const std::string_view text :
       {"", "-1", "0", "0ms", "0.0001", "1.5.2", "1x", "1 s", "1m30s", "nan", "inf", "1e3",
        "forever", "99999999999999999999", "9223372036854775807h", "3651d"}) {
    const auto result = parse_duration({"--timeout", text});
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, Code::kInvalid);
  }
}

TEST(DurationTest, ZeroIsNotTheDefault) {
  const auto result = parse_duration({"--timeout", "0"});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().to_string(), HasSubstr("--timeout '0': a duration cannot be zero"));
}

TEST(DurationTest, FormattedDurationsReadBack) {
  EXPECT_EQ(format_duration(milliseconds(60'000)), "60");
  EXPECT_EQ(format_duration(milliseconds(1500)), "1500ms");
  for (const int count : {1, 999, 1000, 1500, 86'400'000}) {
    EXPECT_EQ(parse_duration({"x", format_duration(milliseconds(count))}).value().count(), count);
  }
}

TEST(CpusTest, FractionsOfACoreAreThousandths) {
  EXPECT_EQ(parse_cpus({"cpus", "1"}).value(), 1000U);
  EXPECT_EQ(parse_cpus({"cpus", "0.5"}).value(), 500U);
  EXPECT_EQ(parse_cpus({"cpus", "1.0"}).value(), 1000U);
  EXPECT_EQ(parse_cpus({"cpus", "2.25"}).value(), 2250U);
  EXPECT_EQ(parse_cpus({"cpus", "0.3333333"}).value(), 333U);
}

TEST(CpusTest, BadCoresAreRefused) {
  for (const std::string_view text :
       {"", "0", "0.0001", "-1", "1m", "1.5.2", "all", "4294968", "nan", "1e1"}) {
    EXPECT_FALSE(parse_cpus({"--cpus", text}).ok()) << text;
  }
}

TEST(CpusTest, FormattedCoresReadBack) {
  EXPECT_EQ(format_cpus(1000), "1");
  EXPECT_EQ(format_cpus(500), "0.5");
  EXPECT_EQ(format_cpus(10), "0.01");
  EXPECT_EQ(format_cpus(2250), "2.25");
  EXPECT_EQ(format_cpus(1001), "1.001");
  EXPECT_EQ(format_cpus(10'000), "10");
}

TEST(CountTest, CountsStayInTheirRange) {
  EXPECT_EQ(parse_count({"pids", "50"}, {2, 100}).value(), 50U);
  EXPECT_EQ(parse_count({"pids", "2"}, {2, 100}).value(), 2U);
  EXPECT_EQ(parse_count({"from", "0"}, {0, 100}).value(), 0U);
  for (const std::string_view text : {"", "1", "101", "-3", "2.5", "5k", "many", "5 ", "1e1"}) {
    EXPECT_FALSE(parse_count({"--pids", text}, {2, 100}).ok()) << text;
  }
  EXPECT_THAT(parse_count({"--pids", "1"}, {2, 100}).error().message, HasSubstr("at least 2"));
}

}  // namespace
}  // namespace carrel::policy
