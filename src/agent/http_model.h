#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/model.h"
#include "base/result.h"
#include "http/client.h"

namespace carrel::agent {

// What all models behind an HTTP API have in common.
struct ModelSettings {
  std::string provider;  // "anthropic" or "openai"
  std::string name;
  std::string base_url = {};        // empty: the provider's own
  std::string key = {};             // empty: none; it is in no message and no record
  std::uint64_t max_tokens = 8192;  // of one answer
  std::optional<double> temperature = {};
  Retries retries = {};
};

// kInvalid for a provider that there is not, or a URL that is none.
Result<std::unique_ptr<Model>> make_http_model(ModelSettings settings);

// The body of a request for each of them. What the conversation has from strangers is put in as
// text; calls that the provider would refuse to read are made harmless.
std::string anthropic_request(const ModelSettings& settings, const Prompt& prompt);
std::string openai_request(const ModelSettings& settings, const Prompt& prompt);

// How long a provider asks to be left alone, in seconds: "2", "0.5". A date is not read.
std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view text);

}  // namespace carrel::agent
