// The streams of providers of models: any bytes, in pieces of any size, are an answer or an error;
// the same bytes in other pieces give the same; what is kept is bounded, and what was heard is what
// the answer says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "agent/http_model.h"
#include "agent/stream_decoder.h"
#include "http/event_reader.h"

namespace {

using carrel::Result;
using carrel::Status;
using carrel::agent::Listener;
using carrel::agent::Reply;
using carrel::agent::StreamDecoder;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

using Make = std::unique_ptr<StreamDecoder> (*)(const Listener&);

Result<Reply> decode(Make make, std::string_view bytes, std::size_t piece) {
  std::string heard;
  Listener listener;
  listener.said = [&](std::string_view text) { heard += text; };
  const std::unique_ptr<StreamDecoder> decoder = make(listener);
  carrel::http::EventReader reader(64 << 10);
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    const Status fed = reader.feed(
        part, [&](const carrel::http::StreamEvent& event) { return decoder->take(event); });
    if (!fed.ok()) {
      return fed.error();
    }
  }
  auto reply = decoder->finish();
  if (reply.ok()) {
    require(reply.value().text == heard);
    require(reply.value().calls.size() <= carrel::agent::kMostCalls);
    std::set<std::string> ids;
    for (const carrel::agent::ToolCall& call : reply.value().calls) {
      require(!call.id.empty() && ids.insert(call.id).second);
    }
  }
  return reply;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Make make :
       {carrel::agent::make_anthropic_decoder, carrel::agent::make_openai_decoder}) {
    const auto whole = decode(make, text, text.size() + 1);
    const auto pieces = decode(make, text, 3);
    require(whole.ok() == pieces.ok());
    if (whole.ok()) {
      require(carrel::agent::reply_to_json(whole.value()) ==
              carrel::agent::reply_to_json(pieces.value()));
      require(carrel::agent::reply_from_json(carrel::agent::reply_to_json(whole.value())).ok());
      // And it can be sent back to either.
      const std::vector<carrel::agent::Message> messages = {
          {carrel::agent::Message::Role::kAssistant, whole.value().text, whole.value().calls}};
      const std::vector<const carrel::tools::ToolDefinition*> none;
      (void)carrel::agent::anthropic_request({}, {"", messages, none});
      (void)carrel::agent::openai_request({}, {"", messages, none});
    }
  }
  return 0;
}
