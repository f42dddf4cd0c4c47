#include "protocol/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/frame.h"

namespace carrel::protocol {
namespace {

using ByteList = std::vector<unsigned char>;

ByteList written_by(void (*write)(Writer&)) {
  ByteList room(4096);
  Writer writer(room);
  write(writer);
  EXPECT_TRUE(writer.ok());
  room.resize(writer.size());
  return room;
}

void write_one_of_each(Writer& writer) {
  writer.u8(0x01);
  writer.u16(0x0203);
  writer.u32(0x04050607);
  writer.u64(0x08090a0b0c0d0e0f);
  writer.bytes(std::string_view("a\0b", 3));
  writer.bytes("text");
}

struct OneOfEach {
  std::uint8_t a;
  std::uint16_t b;
  std::uint32_t c;
  std::uint64_t d;
  std::string_view bytes;
  std::string_view text;
};

OneOfEach read_one_of_each(Reader& reader) {
  OneOfEach all{};
  all.a = reader.u8();
  all.b = reader.u16();
  all.c = reader.u32();
  all.d = reader.u64();
  all.bytes = reader.bytes(3);
  all.text = reader.text(4);
  return all;
}

TEST(Wire, NumbersAreLittleEndian) {
  const ByteList bytes = written_by([](Writer& writer) {
    writer.u16(0x0102);
    writer.u32(0x03040506);
    writer.u64(0x0708090a0b0c0d0e);
  });
  EXPECT_EQ(bytes, (ByteList{2, 1, 6, 5, 4, 3, 14, 13, 12, 11, 10, 9, 8, 7}));
}

TEST(Wire, BytesCarryTheirLength) {
  const ByteList bytes = written_by([](Writer& writer) { writer.bytes("hi"); });
  EXPECT_EQ(bytes, (ByteList{2, 0, 0, 0, 'h', 'i'}));
}

TEST(Wire, WhatIsWrittenIsReadBack) {
  const ByteList bytes = written_by(write_one_of_each);
  Reader reader(bytes);
  const OneOfEach all = read_one_of_each(reader);
  EXPECT_TRUE(reader.finished());
  EXPECT_EQ(all.a, 0x01);
  EXPECT_EQ(all.b, 0x0203);
  EXPECT_EQ(all.c, 0x04050607U);
  EXPECT_EQ(all.d, 0x08090a0b0c0d0e0fU);
  EXPECT_EQ(all.bytes, std::string_view("a\0b", 3));
  EXPECT_EQ(all.text, "text");
}

TEST(Wire, LargestNumbersSurvive) {
  const ByteList bytes = written_by([](Writer& writer) {
    writer.u8(std::numeric_limits<std::uint8_t>::max());
    writer.u16(std::numeric_limits<std::uint16_t>::max());
    writer.u32(std::numeric_limits<std::uint32_t>::max());
    writer.u64(std::numeric_limits<std::uint64_t>::max());
  });
  Reader reader(bytes);
  EXPECT_EQ(reader.u8(), std::numeric_limits<std::uint8_t>::max());
  EXPECT_EQ(reader.u16(), std::numeric_limits<std::uint16_t>::max());
  EXPECT_EQ(reader.u32(), std::numeric_limits<std::uint32_t>::max());
  EXPECT_EQ(reader.u64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(reader.finished());
}

TEST(Wire, InputCutAtAnyByteFails) {
  const ByteList bytes = written_by(write_one_of_each);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly this size, so that a read past its end is seen by the sanitizer.
    const ByteList cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    Reader reader(cut);
    read_one_of_each(reader);
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_FALSE(reader.finished()) << size;
  }
}

TEST(Wire, TrailingByteIsNotFinished) {
  ByteList bytes = written_by(write_one_of_each);
  bytes.push_back(0);
  Reader reader(bytes);
  read_one_of_each(reader);
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.finished());
}

TEST(Wire, FailedReaderStaysFailedAndGivesZeros) {
  const ByteList bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  Reader reader(bytes);
  reader.fail();
  EXPECT_EQ(reader.u8(), 0);
  EXPECT_EQ(reader.u64(), 0U);
  EXPECT_TRUE(reader.bytes(100).empty());
  EXPECT_TRUE(reader.rest().empty());
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, ReadPastTheEndTakesWhatWasLeftAway) {
  const ByteList bytes = {1, 2, 3};
  Reader reader(bytes);
  EXPECT_EQ(reader.u32(), 0U);
  EXPECT_EQ(reader.u8(), 0);
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, LengthOverTheLimitFailsAndTheLimitItselfDoesNot) {
  const ByteList bytes = written_by([](Writer& writer) { writer.bytes("12345"); });
  Reader fits(bytes);
  EXPECT_EQ(fits.bytes(5), "12345");
  EXPECT_TRUE(fits.finished());
  Reader over(bytes);
  EXPECT_TRUE(over.bytes(4).empty());
  EXPECT_FALSE(over.ok());
}

TEST(Wire, LengthBeyondTheBufferFails) {
  for (std::uint32_t length : {6U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    ByteList bytes(4 + 5);
    Writer writer(bytes);
    writer.u32(length);
    Reader reader(bytes);
    EXPECT_TRUE(reader.bytes(std::numeric_limits<std::size_t>::max()).empty());
    EXPECT_FALSE(reader.ok()) << length;
  }
}

TEST(Wire, NulInTextFailsWhereverItStands) {
  for (std::size_t at = 0; at < 4; ++at) {
    ByteList bytes = {4, 0, 0, 0, 'a', 'b', 'c', 'd'};
    bytes[4 + at] = 0;
    Reader text(bytes);
    EXPECT_TRUE(text.text(10).empty());
    EXPECT_FALSE(text.ok()) << at;
    Reader data(bytes);
    EXPECT_EQ(data.bytes(10).size(), 4U);
    EXPECT_TRUE(data.finished()) << at;
  }
}

TEST(Wire, EmptyTextIsText) {
  const ByteList bytes = {0, 0, 0, 0};
  Reader reader(bytes);
  EXPECT_TRUE(reader.text(0).empty());
  EXPECT_TRUE(reader.finished());
}

TEST(Wire, RestIsAllThatIsLeft) {
  const ByteList bytes = {7, 'x', 0, 'y'};
  Reader reader(bytes);
  EXPECT_EQ(reader.u8(), 7);
  EXPECT_EQ(reader.rest(), std::string_view("x\0y", 3));
  EXPECT_TRUE(reader.finished());
}

TEST(Wire, WriterNeverWritesPastItsBuffer) {
  const ByteList whole = written_by(write_one_of_each);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ByteList room(size);
    Writer writer(room);
    write_one_of_each(writer);
    EXPECT_FALSE(writer.ok()) << size;
    EXPECT_LE(writer.size(), size);
  }
  ByteList exact(whole.size());
  Writer writer(exact);
  write_one_of_each(writer);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(exact, whole);
}

TEST(Wire, FailedWriterWritesNothingMore) {
  ByteList room(4, 0xee);
  Writer writer(room);
  writer.u64(1);
  EXPECT_FALSE(writer.ok());
  writer.u8(1);
  EXPECT_EQ(writer.size(), 0U);
  EXPECT_EQ(room, ByteList(4, 0xee));
}

using Head = std::array<unsigned char, kHeaderSize>;

TEST(FrameHeader, IsReadBackAsWritten) {
  Head head{};
  write_header({1234, 0xfffffffe, FrameType::kOutput}, head);
  FrameHeader header;
  ASSERT_TRUE(parse_header(head, kMaxPayload, header));
  EXPECT_EQ(header.size, 1234U);
  EXPECT_EQ(header.channel, 0xfffffffeU);
  EXPECT_EQ(header.type, FrameType::kOutput);
}

TEST(FrameHeader, SizeOverTheLimitIsRefusedAndTheLimitItselfIsNot) {
  for (const std::size_t limit : {kMaxGuestPayload, kMaxPayload}) {
    Head head{};
    FrameHeader header;
    write_header({static_cast<std::uint32_t>(limit), 1, FrameType::kOutput}, head);
    EXPECT_TRUE(parse_header(head, limit, header));
    write_header({static_cast<std::uint32_t>(limit) + 1, 1, FrameType::kOutput}, head);
    EXPECT_FALSE(parse_header(head, limit, header));
  }
}

TEST(FrameHeader, ReservedFieldMustBeZero) {
  for (const std::size_t at : {std::size_t{10}, std::size_t{11}}) {
    Head head{};
    write_header({0, 1, FrameType::kOutput}, head);
    head[at] = 1;
    FrameHeader header;
    EXPECT_FALSE(parse_header(head, kMaxPayload, header)) << at;
  }
}

TEST(FrameHeader, WindowOfInputFitsWhatOneFrameCanHold) {
  EXPECT_LE(kInputWindow, kMaxPayload);
  EXPECT_LE(kMaxGuestPayload, kMaxPayload);
}

}  // namespace
}  // namespace carrel::protocol
