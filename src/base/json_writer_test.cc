#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace carrel {
namespace {

using Json = nlohmann::ordered_json;

std::string written(std::string_view text, JsonWriter::Characters characters) {
  JsonWriter writer(characters);
  return std::move(writer.value(text)).text();
}

TEST(JsonWriter, WritesObjectsAndArraysWithTheirCommas) {
  JsonWriter writer;
  writer.open_object().field("a", 1).key("b").open_array().value("x").value(true).null();
  writer.open_object().close_object().close_array().field("c", false).key("d").json("[1,2]");
  writer.key("e").open_array().close_array().close_object();
  EXPECT_EQ(writer.text(), R"({"a":1,"b":["x",true,null,{}],"c":false,"d":[1,2],"e":[]})");
}

TEST(JsonWriter, WritesNumbersOfEverySize) {
  JsonWriter writer;
  writer.open_array()
      .value(std::numeric_limits<std::uint64_t>::max())
      .value(std::numeric_limits<std::int64_t>::min())
      .value(std::uint16_t{0})
      .close_array();
  EXPECT_EQ(writer.text(), "[18446744073709551615,-9223372036854775808,0]");
}

TEST(JsonWriter, EscapesAsTheParserOfOthersExpects) {
  const std::string text = std::string("q\" b\\ \b\f\n\r\t \x01\x1f \x7f \xc3\xa9 \xe2\x82\xac ") +
                           "\xf0\x9f\x98\x80" + std::string(1, '\0') + "end";
  EXPECT_EQ(written(text, JsonWriter::Characters::kUtf8), Json(text).dump());
  EXPECT_EQ(written(text, JsonWriter::Characters::kAscii), Json(text).dump(-1, ' ', true));
}

// Whatever the bytes are: one valid JSON string on one line, and valid UTF-8 comes back as it was.
TEST(JsonWriter, AnyBytesAreOneString) {
  std::mt19937 random(7);
  for (int i = 0; i < 2'000; ++i) {
    std::string text(random() % 12, '\0');
    for (char& c : text) {
      c = static_cast<char>(random() % 3 == 0 ? random() % 256 : 0x80 + random() % 128);
    }
    for (const auto characters : {JsonWriter::Characters::kUtf8, JsonWriter::Characters::kAscii}) {
      const std::string json = written(text, characters);
      const Json parsed = Json::parse(json, nullptr, false);
      ASSERT_TRUE(parsed.is_string()) << json;
      EXPECT_EQ(json.find('\n'), std::string::npos);
      bool valid = true;
      try {
        (void)Json(text).dump();
      } catch (const Json::exception&) {
        valid = false;
      }
      if (valid) {
        EXPECT_EQ(parsed.get<std::string>(), text);
      }
    }
  }
}

}  // namespace
}  // namespace carrel
