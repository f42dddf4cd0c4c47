#include "backends/native/dbus_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace carrel::native {
namespace {

using testing::HasSubstr;

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (int value : values) {
    text += static_cast<char>(value);
  }
  return text;
}

// A message of the other side's, by hand.
std::string answer(DbusKind kind, std::uint32_t reply_serial, const std::string& error_name,
                   const std::string& text) {
  DbusWriter body;
  if (!text.empty()) {
    body.string(text);
  }
  DbusWriter writer;
  writer.byte('l');
  writer.byte(static_cast<std::uint8_t>(kind));
  writer.byte(1);
  writer.byte(1);
  writer.u32(static_cast<std::uint32_t>(body.data().size()));
  writer.u32(77);
  const DbusWriter::Array fields = writer.begin_array(8);
  if (reply_serial != 0) {
    writer.align(8);
    writer.byte(5);
    writer.signature("u");
    writer.u32(reply_serial);
  }
  if (!error_name.empty()) {
    writer.align(8);
    writer.byte(4);
    writer.signature("s");
    writer.string(error_name);
  }
  if (!text.empty()) {
    writer.align(8);
    writer.byte(8);
    writer.signature("g");
    writer.signature("s");
  }
  writer.end_array(fields);
  writer.align(8);
  return writer.data() + body.data();
}

TEST(DbusWriter, NumbersAreAlignedAndLittleEndian) {
  DbusWriter writer;
  writer.byte(7);
  writer.u32(0x01020304);
  writer.byte(8);
  writer.u64(1);
  EXPECT_EQ(writer.data(),
            bytes({7, 0, 0, 0, 4, 3, 2, 1, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(DbusWriter, StringsAndSignaturesEndWithAZero) {
  DbusWriter writer;
  writer.string("ab");
  writer.signature("au");
  EXPECT_EQ(writer.data(), bytes({2, 0, 0, 0, 'a', 'b', 0, 2, 'a', 'u', 0}));
}

TEST(DbusWriter, PaddingBeforeTheFirstElementIsNotCounted) {
  DbusWriter writer;
  const DbusWriter::Array array = writer.begin_array(8);
  writer.u64(5);
  writer.end_array(array);
  EXPECT_EQ(writer.data(), bytes({8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(DbusCall, IsWhatABusExpects) {
  DbusCall call;
  call.path = "/a";
  call.member = "M";
  const std::string data = encode_call(call, 3);
  EXPECT_EQ(data, bytes({'l', 1, 0,   1, 0, 0, 0, 0, 3,   0,   0, 0, 26, 0, 0, 0,  // fixed, fields
                         1,   1, 'o', 0, 2, 0, 0, 0, '/', 'a', 0, 0, 0,  0, 0, 0,
                         3,   1, 's', 0, 1, 0, 0, 0, 'M', 0,   0, 0, 0,  0, 0, 0}));
  auto size = dbus_message_size(data);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size.value(), data.size());
}

TEST(DbusCall, BodyBeginsAtAMultipleOfEight) {
  DbusCall call;
  call.destination = "org.example";
  call.path = "/org/example";
  call.interface = "org.example.Some";
  call.member = "Method";
  call.signature = "s";
  const std::string body = bytes({1, 0, 0, 0, 'x', 0});
  call.body = body;
  const std::string data = encode_call(call, 1);
  EXPECT_EQ((data.size() - body.size()) % 8, 0U);
  EXPECT_TRUE(data.ends_with(body));
  auto decoded = decode_message(data);
  ASSERT_TRUE(decoded.ok()) << decoded.error().to_string();
  EXPECT_EQ(decoded.value().kind, DbusKind::kCall);
}

TEST(DbusMessage, AnswerNamesItsCall) {
  auto message = decode_message(answer(DbusKind::kReturn, 9, "", "/job/1"));
  ASSERT_TRUE(message.ok()) << message.error().to_string();
  EXPECT_EQ(message.value().kind, DbusKind::kReturn);
  EXPECT_EQ(message.value().reply_serial, 9U);
}

TEST(DbusMessage, ErrorHasItsNameAndItsWords) {
  auto message = decode_message(answer(DbusKind::kError, 9, "org.example.No", "not today"));
  ASSERT_TRUE(message.ok()) << message.error().to_string();
  EXPECT_EQ(message.value().error_name, "org.example.No");
  EXPECT_EQ(message.value().text, "not today");
}

TEST(DbusMessage, AnswerToNothingIsRefused) {
  EXPECT_FALSE(decode_message(answer(DbusKind::kReturn, 0, "", "")).ok());
}

TEST(DbusMessage, EveryCutIsRefused) {
  const std::string whole = answer(DbusKind::kError, 9, "org.example.No", "not today");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode_message(std::string_view(whole).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_message(whole + "x").ok());
}

// Whatever one byte becomes, reading stays within the message; the sanitizers watch.
TEST(DbusMessage, EveryChangedByteIsReadOrRefused) {
  const std::string whole = answer(DbusKind::kError, 9, "org.example.No", "not today");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      auto message = decode_message(changed);
      if (message.ok()) {
        EXPECT_LE(message.value().text.size(), whole.size());
      }
    }
  }
}

TEST(DbusMessage, SizesAreBounded) {
  std::string data = answer(DbusKind::kReturn, 9, "", "");
  for (std::size_t at : {std::size_t{4}, std::size_t{12}}) {
    std::string large = data;
    large.replace(at, 4, bytes({0xff, 0xff, 0xff, 0xff}));
    EXPECT_FALSE(dbus_message_size(large).ok()) << at;
    large.replace(at, 4, bytes({0, 0, 1, 0}));
    EXPECT_FALSE(dbus_message_size(large).ok()) << at;
  }
}

TEST(DbusMessage, OtherByteOrderAndVersionAreRefused) {
  std::string data = answer(DbusKind::kReturn, 9, "", "");
  std::string big = data;
  big[0] = 'B';
  EXPECT_FALSE(dbus_message_size(big).ok());
  std::string newer = data;
  newer[3] = 2;
  auto refused = dbus_message_size(newer);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("malformed"));
}

}  // namespace
}  // namespace carrel::native
