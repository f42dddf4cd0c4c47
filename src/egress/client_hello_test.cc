#include "egress/client_hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::egress {
namespace {

using Message = std::vector<std::uint8_t>;

void add(Message& to, const Message& more) { to.insert(to.end(), more.begin(), more.end()); }
Message u16(std::size_t number) {
  return {static_cast<std::uint8_t>(number >> 8U), static_cast<std::uint8_t>(number)};
}
Message with_size(const Message& content) {
  Message result = u16(content.size());
  add(result, content);
  return result;
}
Message text(std::string_view content) { return {content.begin(), content.end()}; }

Message extension(std::uint16_t type, const Message& data) {
  Message result = u16(type);
  add(result, with_size(data));
  return result;
}

Message names(std::initializer_list<std::string_view> list) {
  Message entries;
  for (const std::string_view name : list) {
    entries.push_back(0);
    add(entries, with_size(text(name)));
  }
  return extension(0, with_size(entries));
}

Message message(const Message& extensions) {
  Message body = {3, 3};
  body.resize(2 + 32, 7);
  add(body, {0});              // no session
  add(body, {0, 2, 0x13, 1});  // one cipher
  add(body, {1, 0});           // no compression
  add(body, with_size(extensions));
  Message result = {1, 0};
  add(result, u16(body.size()));
  add(result, body);
  return result;
}

Message record(const Message& part) {
  Message result = {22, 3, 1};
  add(result, with_size(part));
  return result;
}

Message hello(const Message& extensions) { return record(message(extensions)); }

TEST(ClientHello, SaysTheNameAndTheProtocols) {
  Message extensions = extension(10, {0, 2, 0, 29});
  add(extensions, names({"Example.ORG."}));
  add(extensions,
      extension(16, with_size({2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1'})));
  const auto result = parse_client_hello(hello(extensions));
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_EQ(result.value.server_name->text(), "example.org");
  EXPECT_THAT(result.value.protocols, testing::ElementsAre("h2", "http/1.1"));
  EXPECT_FALSE(result.value.encrypted_hello);
  EXPECT_EQ(result.used, hello(extensions).size());
}

TEST(ClientHello, CanHaveNoNameOrHideOne) {
  EXPECT_FALSE(parse_client_hello(hello({})).value.server_name.has_value());
  Message bare = message({});
  bare.resize(bare.size() - 2);
  bare[3] = static_cast<std::uint8_t>(bare[3] - 2);
  EXPECT_TRUE(parse_client_hello(record(bare)).parsed());
  for (const int type : {0xfe0d, 0xfe0a, 0xffce}) {
    EXPECT_TRUE(parse_client_hello(hello(extension(static_cast<std::uint16_t>(type), {0})))
                    .value.encrypted_hello);
  }
}

TEST(ClientHello, ComesInAnyPieces) {
  const Message whole = hello(names({"example.org"}));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(parse_client_hello(Bytes(whole).first(size)).needs_more()) << size;
  }
  // And in many records, with something behind them.
  const Message inner = message(names({"example.org"}));
  Message split;
  for (std::size_t at = 0; at < inner.size(); at += 3) {
    const std::size_t size = std::min<std::size_t>(3, inner.size() - at);
    const auto from = inner.begin() + static_cast<std::ptrdiff_t>(at);
    add(split, record(Message(from, from + static_cast<std::ptrdiff_t>(size))));
  }
  const std::size_t size = split.size();
  add(split, {23, 3, 3, 0, 1, 9});
  const auto result = parse_client_hello(split);
  ASSERT_TRUE(result.parsed()) << result.reason;
  EXPECT_EQ(result.value.server_name->text(), "example.org");
  EXPECT_EQ(result.used, size);
}

TEST(ClientHello, TooManyRecordsOrBytesAreRefused) {
  const Message inner = message(names({"example.org"}));
  Message split;
  for (const std::uint8_t byte : inner) {
    add(split, record({byte}));
  }
  EXPECT_TRUE(parse_client_hello(split).is_refused());
  EXPECT_TRUE(parse_client_hello(hello(extension(21, Message(16000, 0)))).parsed());
  const Message start = {22, 3, 1, 0x40, 0, 1, 0, 0x40, 0};
  EXPECT_TRUE(parse_client_hello(start).is_refused());
}

TEST(ClientHello, WhatIsNoneIsRefused) {
  const auto refused = [](const Message& bytes) { return parse_client_hello(bytes).is_refused(); };
  EXPECT_TRUE(refused(text("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(refused({22, 2}));
  EXPECT_TRUE(refused({21, 3, 1, 0, 2, 1, 0}));
  EXPECT_TRUE(refused({22, 3, 1, 0, 0}));
  EXPECT_TRUE(refused({22, 3, 1, 0x40, 1}));
  EXPECT_TRUE(refused({22, 3, 1, 0, 4, 2}));  // a ServerHello
  EXPECT_TRUE(refused(record({1, 0, 0, 0, 0})));
  EXPECT_TRUE(refused(record({1, 0, 0, 1, 0})));
  Message long_one = message(names({"a.org"}));
  long_one.push_back(0);
  EXPECT_TRUE(refused(record(long_one)));  // behind the message
  long_one[3] = static_cast<std::uint8_t>(long_one[3] + 1);
  EXPECT_TRUE(refused(record(long_one)));  // behind the extensions
}

TEST(ClientHello, NamesAndExtensionsAreThereOnce) {
  const auto refused = [](const Message& extensions) {
    return parse_client_hello(hello(extensions)).is_refused();
  };
  Message twice = names({"a.org"});
  add(twice, names({"a.org"}));
  EXPECT_TRUE(refused(twice));
  Message other = extension(5, {});
  add(other, extension(5, {}));
  EXPECT_TRUE(refused(other));
  EXPECT_TRUE(refused(names({"a.org", "b.org"})));
  EXPECT_TRUE(refused(names({})));
  EXPECT_TRUE(refused(names({""})));
  EXPECT_TRUE(refused(names({std::string_view("evil.org\0.a.org", 15)})));
  EXPECT_TRUE(refused(names({"a b"})));
  EXPECT_TRUE(refused(names({"127.1"})));
  EXPECT_FALSE(refused(names({"127.0.0.1"})));
  EXPECT_TRUE(refused(extension(0, {0, 4, 1, 0, 1, 'a'})));
  EXPECT_TRUE(refused(extension(0, {0, 9, 0, 0, 1, 'a'})));
  EXPECT_TRUE(refused(extension(0, {})));
  EXPECT_TRUE(refused(extension(16, {0, 0})));
  EXPECT_TRUE(refused(extension(16, {0, 1, 0})));
  EXPECT_TRUE(refused(extension(16, {0, 2, 2, 'h'})));
  EXPECT_TRUE(refused({0, 5, 0, 9, 1}));
}

}  // namespace
}  // namespace carrel::egress
