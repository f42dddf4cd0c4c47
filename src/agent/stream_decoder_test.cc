#include "agent/stream_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::agent {
namespace {

using testing::HasSubstr;

// Feeds events; the first error, or the answer.
Result<Reply> decode(const std::unique_ptr<StreamDecoder>& decoder,
                     const std::vector<std::string>& events) {
  for (const std::string& data : events) {
    CARREL_TRY(decoder->take({"", "", data}));
  }
  return decoder->finish();
}

class AnthropicDecoderTest : public testing::Test {
 protected:
  Result<Reply> decode_all(const std::vector<std::string>& events) {
    return decode(make_anthropic_decoder(listener_), events);
  }
  std::string heard_;
  Listener listener_{.said = [this](std::string_view text) { heard_ += text; }};
};

TEST_F(AnthropicDecoderTest, TextAndCallsAndUsageArePutTogether) {
  auto reply = decode_all(
      {R"({"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1,"cache_read_input_tokens":5}}})",
       R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})",
       R"({"type":"ping"})",
       R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I "}})",
       R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look."}})",
       R"({"type":"content_block_stop","index":0})",
       R"({"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"exec","input":{}}})",
       R"({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"comm"}})",
       R"({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"and\":\"ls\"}"}})",
       R"({"type":"content_block_stop","index":1})",
       R"({"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":20}})",
       R"({"type":"message_stop"})"});
  ASSERT_TRUE(reply.ok()) << reply.error().to_string();
  EXPECT_EQ(reply->text, "I look.");
  EXPECT_EQ(heard_, "I look.");
  ASSERT_EQ(reply->calls.size(), 1U);
  EXPECT_EQ(reply->calls[0].id, "t1");
  EXPECT_EQ(reply->calls[0].name, "exec");
  EXPECT_EQ(reply->calls[0].arguments, R"({"command":"ls"})");
  EXPECT_EQ(reply->usage.input, 15U);
  EXPECT_EQ(reply->usage.output, 20U);
  EXPECT_EQ(reply->stop, Reply::Stop::kCalls);
}

TEST_F(AnthropicDecoderTest, AnAnswerWithoutItsEndWasCutOff) {
  auto reply = decode_all(
      {R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I "}})"});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, Code::kUnavailable);
}

TEST_F(AnthropicDecoderTest, AnOverloadPassesAndARefusalDoesNot) {
  EXPECT_EQ(decode_all({R"({"type":"error","error":{"type":"overloaded_error","message":"busy"}})"})
                .error()
                .code,
            Code::kUnavailable);
  EXPECT_EQ(
      decode_all({R"({"type":"error","error":{"type":"invalid_request_error"}})"}).error().code,
      Code::kInvalid);
}

TEST_F(AnthropicDecoderTest, EventsOfTheWrongShapeAreNoCrash) {
  for (const char* text : {"", "[]", "{", "null", "7"}) {
    EXPECT_FALSE(decode_all({text}).ok()) << text;
  }
  for (const char* text : {R"({"type":7})", R"({"type":"content_block_delta"})",
                           R"({"type":"content_block_start","content_block":[],"index":-1})",
                           R"({"type":"message_delta","usage":"x","delta":7})",
                           R"({"type":"message_start","message":{"usage":{"input_tokens":-5}}})"}) {
    EXPECT_TRUE(decode_all({text, R"({"type":"message_stop"})"}).ok()) << text;
  }
}

TEST_F(AnthropicDecoderTest, WhatIsKeptIsBounded) {
  const std::string piece(100'000, 'x');
  const std::unique_ptr<StreamDecoder> decoder = make_anthropic_decoder(listener_);
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = decoder->take(
        {"", "",
         R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":")" +
             piece + R"("}})"});
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kResource);
  const std::unique_ptr<StreamDecoder> many = make_anthropic_decoder(listener_);
  status = {};
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    status = many->take({"", "",
                         R"({"type":"content_block_start","content_block":{"type":"tool_use"},)"
                         R"("index":)" +
                             std::to_string(i) + "}"});
  }
  EXPECT_FALSE(status.ok());
}

class OpenAiDecoderTest : public testing::Test {
 protected:
  Result<Reply> decode_all(const std::vector<std::string>& events) {
    return decode(make_openai_decoder(listener_), events);
  }
  Listener listener_;
};

TEST_F(OpenAiDecoderTest, TextAndCallsAndUsageArePutTogether) {
  auto reply = decode_all(
      {R"({"choices":[{"delta":{"role":"assistant","content":"Hel"}}]})",
       R"({"choices":[{"delta":{"content":"lo"}}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"exec","arguments":""}}]}}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":"}}]}}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"ls\"}"}}]}}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"x","arguments":"{}"}}]}}]})",
       R"({"choices":[{"delta":{},"finish_reason":"tool_calls"}]})",
       R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}})", "[DONE]"});
  ASSERT_TRUE(reply.ok()) << reply.error().to_string();
  EXPECT_EQ(reply->text, "Hello");
  ASSERT_EQ(reply->calls.size(), 2U);
  EXPECT_EQ(reply->calls[0].arguments, R"({"command":"ls"})");
  EXPECT_EQ(reply->calls[1].name, "x");
  EXPECT_EQ(reply->usage.total(), 10U);
}

TEST_F(OpenAiDecoderTest, CallsOfServersThatCountNothingAreApart) {
  auto reply = decode_all(
      {R"({"choices":[{"delta":{"tool_calls":[{"function":{"name":"a","arguments":{"x":1}}}]}}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"function":{"name":"b","arguments":"{}"}}]}}]})",
       "[DONE]"});
  ASSERT_TRUE(reply.ok());
  ASSERT_EQ(reply->calls.size(), 2U);
  EXPECT_EQ(reply->calls[0].arguments, R"({"x":1})");
  EXPECT_NE(reply->calls[0].id, reply->calls[1].id);
  EXPECT_NE(reply->calls[0].id, "");
}

TEST_F(OpenAiDecoderTest, CallsWithTheSameIdAreToldApart) {
  auto reply = decode_all(
      {R"({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c"},{"index":1,"id":"c"}]}}]})",
       "[DONE]"});
  ASSERT_TRUE(reply.ok());
  EXPECT_NE(reply->calls[0].id, reply->calls[1].id);
}

TEST_F(OpenAiDecoderTest, ALimitAndAnErrorAreTold) {
  EXPECT_EQ(
      decode_all({R"({"choices":[{"delta":{"content":"x"},"finish_reason":"length"}]})"})->stop,
      Reply::Stop::kLength);
  auto broken = decode_all({R"({"error":{"type":"server_error","message":"out of memory"}})"});
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, Code::kUnavailable);
  EXPECT_THAT(broken.error().message, HasSubstr("out of memory"));
  EXPECT_FALSE(decode_all({R"({"choices":[{"delta":{"content":"x"}}]})"}).ok());
}

TEST_F(OpenAiDecoderTest, EventsOfTheWrongShapeAreNoCrash) {
  for (const char* text :
       {R"({"choices":7})", R"({"choices":[7]})", R"({"choices":[{"delta":[]}]})",
        R"({"choices":[{"delta":{"tool_calls":[7,{"index":"a"},{"function":[]}]}}]})",
        R"({"choices":[{"delta":{"content":{}}}],"usage":[]})"}) {
    EXPECT_TRUE(decode_all({text, "[DONE]"}).ok()) << text;
  }
}

}  // namespace
}  // namespace carrel::agent
