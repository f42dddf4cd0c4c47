#include "agent/stream_decoder.h"

#include <algorithm>
#include <set>

namespace carrel::agent {
namespace {

Error too_long(const std::string& what) {
  return {Code::kResource, 0, "the model's answer has " + what, {}};
}

}  // namespace

Status StreamDecoder::add_text(std::string_view text) {
  if (reply_.text.size() + text.size() > kLongestText) {
    return too_long("more than 4 MiB of text");
  }
  reply_.text += text;
  listener_.said(text);
  return {};
}

Result<ToolCall*> StreamDecoder::call_at(std::size_t index) {
  for (auto& [number, call] : calls_) {
    if (number == index) {
      return &call;
    }
  }
  if (calls_.size() >= kMostCalls) {
    return too_long("more than 64 calls of tools");
  }
  calls_.emplace_back(index, ToolCall{});
  return &calls_.back().second;
}

Status StreamDecoder::add_arguments(ToolCall& call, std::string_view text) {
  call_bytes_ += text.size();
  if (call_bytes_ > kLongestCallText) {
    return too_long("calls with more than 4 MiB of arguments");
  }
  call.arguments += text;
  return {};
}

Result<Reply> StreamDecoder::finish() {
  if (!ended_) {
    return Error{Code::kUnavailable, 0, "the model's answer was cut off", {}};
  }
  // Ids are what replies are told apart by: a missing one, or one that is there twice, is replaced.
  std::set<std::string> seen;
  std::size_t number = 0;
  for (auto& [index, call] : calls_) {
    ++number;
    if (call.id.empty() || call.id.size() > 256 || !seen.insert(call.id).second) {
      call.id = "call_" + std::to_string(number);
      while (!seen.insert(call.id).second) {
        call.id += "_";
      }
    }
    reply_.calls.push_back(std::move(call));
  }
  calls_.clear();
  if (!reply_.calls.empty() && reply_.stop == Reply::Stop::kEnd) {
    reply_.stop = Reply::Stop::kCalls;
  }
  return std::move(reply_);
}

}  // namespace carrel::agent
