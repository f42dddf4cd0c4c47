#include "agent/http_model.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "agent/json_value.h"
#include "agent/stream_decoder.h"
#include "base/utf8.h"
#include "http/event_reader.h"

namespace carrel::agent {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestEvent = 8U << 20;
constexpr std::size_t kLongestComplaint = 16U << 10;
constexpr std::size_t kLongestShown = 300;

struct Provider {
  std::string_view name;
  std::string_view base_url;
  std::string_view path;
  std::string (*body)(const ModelSettings&, const Prompt&);
  std::unique_ptr<StreamDecoder> (*decoder)(const Listener&);
};
constexpr Provider kProviders[] = {
    {"anthropic", "https://api.anthropic.com", "/v1/messages", anthropic_request,
     make_anthropic_decoder},
    {"openai", "https://api.openai.com/v1", "/chat/completions", openai_request,
     make_openai_decoder},
};

// What may pass by itself: too many requests, a server that is busy, down or broken.
bool passes(int status) { return status == 408 || status == 409 || status == 429 || status >= 500; }

// What a provider says about a request that it refuses.
std::string complaint_in(std::string_view body) {
  auto object = parse_object(body, "the answer");
  std::string text;
  if (object.ok()) {
    const Json& error = member(object.value(), "error");
    text = error.is_string() ? error.get<std::string>() : text_member(error, "message");
    text = text.empty() ? text_member(object.value(), "message") : text;
  }
  text = text.empty() ? std::string(body) : text;
  return replace_invalid_utf8(std::string_view(text).substr(0, kLongestShown));
}

class HttpModel final : public Model {
 public:
  HttpModel(ModelSettings settings, const Provider& provider, http::Url url)
      : settings_(std::move(settings)), provider_(provider), url_(std::move(url)) {
    set_retries(settings_.retries);
  }

  [[nodiscard]] std::string identity() const override {
    Json object{{"provider", settings_.provider},
                {"name", settings_.name},
                {"max_tokens", settings_.max_tokens}};
    if (settings_.temperature.has_value()) {
      object["temperature"] = *settings_.temperature;
    }
    return object.dump();
  }

 protected:
  Attempt attempt(const Prompt& prompt, const Listener& listener,
                  const tools::Cancel& cancel) override;

 private:
  [[nodiscard]] http::Request request_for(const Prompt& prompt) const;
  [[nodiscard]] Error refusal(const http::Response& response, const std::string& body) const;
  // A server could say the key back to whoever reads its errors.
  [[nodiscard]] Error without_key(Error error) const;

  ModelSettings settings_;
  const Provider& provider_;
  http::Url url_;
};

http::Request HttpModel::request_for(const Prompt& prompt) const {
  http::Request request;
  request.method = http::Method::kPost;
  request.url = url_;
  request.headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}};
  if (settings_.provider == "anthropic") {
    request.headers.push_back({"anthropic-version", "2023-06-01"});
    if (!settings_.key.empty()) {
      request.headers.push_back({"x-api-key", settings_.key});
    }
  } else if (!settings_.key.empty()) {
    request.authorization = "Bearer " + settings_.key;
  }
  request.body = provider_.body(settings_, prompt);
  request.deadline = prompt.deadline;
  return request;
}

Error HttpModel::without_key(Error error) const {
  if (settings_.key.empty()) {
    return error;
  }
  constexpr std::string_view kInItsPlace = "[key]";
  for (std::string* text : {&error.message, &error.hint}) {
    for (std::size_t at = text->find(settings_.key); at != std::string::npos;
         at = text->find(settings_.key, at + kInItsPlace.size())) {
      text->replace(at, settings_.key.size(), kInItsPlace);  // a short one may be in this
    }
  }
  return error;
}

Error HttpModel::refusal(const http::Response& response, const std::string& body) const {
  const int status = response.status();
  std::string hint;
  if (status == 401 || status == 403) {
    hint = settings_.key.empty() ? "there is no key for it: see 'carrel help agent'"
                                 : "is the key the right one?";
  } else if (status == 404) {
    hint = "is there a model '" + settings_.name + "'?";
  }
  return {passes(status)                   ? Code::kUnavailable
          : status == 401 || status == 403 ? Code::kDenied
                                           : Code::kInvalid,
          0,
          "the provider of the model answers " + std::to_string(status) + ": " + complaint_in(body),
          hint};
}

Model::Attempt HttpModel::attempt(const Prompt& prompt, const Listener& listener,
                                  const tools::Cancel& cancel) {
  http::ClientOptions options;
  options.proxies = http::ProxySettings::from_environment();
  options.idle_patience = 300s;  // a model on a small machine reads for long before it speaks
  options.cancel = cancel.fd();
  http::Client client(std::move(options));
  const std::unique_ptr<StreamDecoder> decoder = provider_.decoder(listener);
  http::EventReader reader(kLongestEvent);
  std::string complaint;
  Status decoded;
  bool begun = false;  // the answer itself
  const auto sink = [&](const http::Response& response, std::string_view bytes) -> Status {
    if (response.status() / 100 != 2) {
      complaint +=
          bytes.substr(0, kLongestComplaint - std::min(kLongestComplaint, complaint.size()));
      return {};
    }
    begun = true;
    decoded =
        reader.feed(bytes, [&](const http::StreamEvent& event) { return decoder->take(event); });
    return decoded;
  };
  auto response = client.send(request_for(prompt), sink);
  const auto hope = [](const Error& error) {
    return error.code == Code::kUnavailable ? Attempt::Hope::kLater : Attempt::Hope::kNone;
  };
  if (!decoded.ok()) {
    const Error error = without_key(decoded.error());
    return {error, hope(error), {}};
  }
  if (!response.ok()) {
    Error error = without_key(response.error());
    // Whatever was wrong with the connection may be better with the next one. What we refuse
    // ourselves stays refused; in the middle of an answer that is TLS that somebody cut.
    const bool refused = !begun && (error.code == Code::kDenied || error.code == Code::kInvalid ||
                                    error.code == Code::kUnsupported);
    return {error, refused ? Attempt::Hope::kNone : Attempt::Hope::kLater, {}};
  }
  if (response->status() / 100 != 2) {
    const Error error = without_key(refusal(response.value(), complaint));
    const std::string* after = response->head.find("retry-after");
    return {error, hope(error), after == nullptr ? std::nullopt : parse_retry_after(*after)};
  }
  auto reply = decoder->finish();
  if (!reply.ok()) {
    return {reply.error(), hope(reply.error()), {}};
  }
  return {std::move(reply.value())};
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view text) {
  constexpr std::uint64_t kMostSeconds = 86'400;
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string_view fraction = text.substr(std::min(point + 1, text.size()));
  std::uint64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + point, seconds);
  const bool digits = fraction.find_first_not_of("0123456789") == std::string_view::npos;
  if (error != std::errc() || end != text.data() + point || !digits || seconds > kMostSeconds) {
    return std::nullopt;
  }
  std::uint64_t thousandths = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    thousandths = thousandths * 10 +
                  (i < fraction.size() ? static_cast<std::uint64_t>(fraction[i] - '0') : 0);
  }
  return std::chrono::milliseconds(seconds * 1000 + thousandths);
}

Result<std::unique_ptr<Model>> make_http_model(ModelSettings settings) {
  for (const Provider& provider : kProviders) {
    if (provider.name != settings.provider) {
      continue;
    }
    if (settings.name.empty()) {
      return Error{Code::kInvalid, 0, "the model has no name",
                   "such as --model " + settings.provider + ":NAME"};
    }
    std::string base =
        settings.base_url.empty() ? std::string(provider.base_url) : settings.base_url;
    while (base.ends_with('/')) {
      base.pop_back();
    }
    auto url = http::parse_url(base + std::string(provider.path));
    if (!url.ok()) {
      url.error().message = "the base URL of the model: " + url.error().message;
      return url.error();
    }
    return std::unique_ptr<Model>(
        std::make_unique<HttpModel>(std::move(settings), provider, std::move(url.value())));
  }
  return Error{Code::kInvalid, 0, "there is no provider of models '" + settings.provider + "'",
               "anthropic, openai (and what speaks like it), or scripted"};
}

}  // namespace carrel::agent
