#include "storage/images/registry.h"

#include <algorithm>
#include <chrono>

#include "base/sha256.h"
#include "storage/images/oci_json.h"
#include "storage/images/registry_auth.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::json;

constexpr auto kPatience = std::chrono::minutes(2);  // for a document
constexpr std::size_t kLargestAnswer = 64U << 10;    // that explains a refusal
constexpr std::string_view kAccepted =
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json";

// What the registry says about an error, as one short line.
std::string explanation(const std::string& body) {
  const Json document = Json::parse(body, nullptr, false);
  const Json& errors = part_of(document, "errors");
  std::string text =
      errors.is_array() && !errors.empty() ? text_of(errors.front(), "message") : std::string();
  text.resize(std::min<std::size_t>(text.size(), 200));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

Error wrong_digest(const std::string& what) {
  return Error{Code::kDenied, 0, what + " does not have the digest that it should have",
               "the registry, or somebody on the way, sent something else"};
}

}  // namespace

Registry::Registry(const Reference& reference, RegistryOptions options)
    : reference_(reference), options_(std::move(options)), client_(options_.http) {}

// TLS where the registry speaks it. Where plain HTTP may be spoken, a registry that does not know
// TLS is asked without it; one whose certificate is wrong is not.
Status Registry::choose_scheme() {
  if (scheme_is_known_) {
    return {};
  }
  const std::string host =
      reference_.registry == "docker.io" ? "registry-1.docker.io" : reference_.registry;
  CARREL_ASSIGN(base_, http::parse_url("https://" + host + "/v2/"));
  const auto asked = client_.fetch({.url = base_}, kLargestAnswer, kPatience);
  if (!asked.ok()) {
    CARREL_ASSIGN(const http::Url plain, http::parse_url("http://" + host + "/v2/"));
    const bool allowed =
        options_.http.plain_http == http::PlainHttp::kAnywhere || http::is_loopback(plain.host);
    const bool elsewhere =  // without a port in its name, on another one
        asked.error().code == Code::kUnavailable && host.find(':') == std::string::npos;
    if (!allowed || (asked.error().code != Code::kUnsupported && !elsewhere)) {
      Error error = asked.error();
      if (error.code == Code::kUnsupported) {
        error.hint = "--insecure-http pulls without encryption";
      }
      return error;
    }
    base_ = plain;
  }
  scheme_is_known_ = true;
  return {};
}

Result<http::Request> Registry::request_for(const std::string& path) {
  CARREL_TRY(choose_scheme());
  http::Request request;
  request.url = base_;
  request.url.target = "/v2/" + reference_.repository + path;
  request.authorization = authorization_;
  return request;
}

Status Registry::authorize(const http::Response& refusal) {
  const std::string* header = refusal.head.find("www-authenticate");
  const auto challenge = header == nullptr ? std::nullopt : parse_challenge(*header);
  if (!challenge.has_value()) {
    return Error{Code::kDenied,
                 0,
                 "the registry " + reference_.registry + " does not say how to log in",
                 {}};
  }
  if (challenge->scheme == Challenge::Scheme::kBasic) {
    authorization_ = options_.credentials;
    return {};
  }
  CARREL_ASSIGN(http::Url realm, http::parse_url(challenge->realm));
  if (http::leads_here(realm.host) && !http::leads_here(base_.host)) {
    return Error{Code::kDenied,
                 0,
                 "the registry " + reference_.registry + " sends us to this host for a token",
                 {}};
  }
  realm.target += realm.target.find('?') == std::string::npos ? "?" : "&";
  realm.target += "service=" + http::encode_query(challenge->service) +
                  "&scope=" + http::encode_query("repository:" + reference_.repository + ":pull");
  CARREL_ASSIGN(const Client::Document answer,
                client_.fetch({.url = realm, .authorization = options_.credentials}, kLargestAnswer,
                              kPatience));
  const std::string token = token_in(answer.body);
  if (answer.response.status() != 200 || token.empty()) {
    return refused(answer.response, answer.body, "a token for " + to_string(reference_));
  }
  authorization_ = "Bearer " + token;
  return {};
}

Error Registry::refused(const http::Response& response, const std::string& body,
                        const std::string& what) {
  const std::string why = explanation(body);
  const std::string said =
      "status " + std::to_string(response.status()) + (why.empty() ? "" : ", " + why);
  switch (response.status()) {
    case 401:
    case 403:
      return Error{Code::kDenied, 0,
                   reference_.registry + " does not give us " + what + " (" + said + ")",
                   options_.credentials.empty()
                       ? "it may be private: `docker login` writes the configuration that is read"
                       : "it is not there, or the credentials in Docker's configuration are not "
                         "enough"};
    case 404:
      return Error{Code::kNotFound, 0, reference_.registry + " does not have " + what, {}};
    case 429:
      return Error{Code::kResource, 0, reference_.registry + " was asked too often (" + said + ")",
                   "log in, or try again later"};
    default:
      return Error{response.status() >= 500 ? Code::kUnavailable : Code::kDenied,
                   0,
                   reference_.registry + " does not give us " + what + " (" + said + ")",
                   {}};
  }
}

template <typename Send>
auto Registry::authorized(const std::string& path, Send send) -> decltype(send(http::Request{})) {
  CARREL_ASSIGN(http::Request request, request_for(path));
  auto answer = send(request);
  // A registry answers from its own host; what a redirect led to has nothing to say here.
  if (answer.ok() && answer.value().response.status() == 401 &&
      http::same_origin(answer.value().response.url, base_)) {
    CARREL_TRY(authorize(answer.value().response));
    if (authorization_.empty()) {
      return answer;
    }
    request.authorization = authorization_;
    return send(request);
  }
  return answer;
}

Result<Registry::Document> Registry::manifest(const std::string& which) {
  CARREL_ASSIGN(const Client::Document answer,
                authorized("/manifests/" + which, [&](http::Request request) {
                  request.headers.push_back({"Accept", std::string(kAccepted)});
                  return client_.fetch(request, kLargestJson, kPatience);
                }));
  if (answer.response.status() != 200) {
    return refused(answer.response, answer.body, to_string(reference_));
  }
  Document document{answer.body, sha256(answer.body)};
  const std::string* said = answer.response.head.find("docker-content-digest");
  if (said != nullptr && said->starts_with("sha256:") && sha256_of(*said) != document.digest) {
    return wrong_digest("the manifest of " + to_string(reference_));
  }
  return document;
}

Result<Registry::Document> Registry::manifest_by_tag(const std::string& tag) {
  return manifest(tag);
}

Result<Registry::Document> Registry::manifest_by_digest(const std::string& digest) {
  CARREL_ASSIGN(Document document, manifest("sha256:" + digest));
  if (document.digest != digest) {
    return wrong_digest("the manifest of " + to_string(reference_));
  }
  return document;
}

Result<std::string> Registry::small_blob(const std::string& digest) {
  CARREL_ASSIGN(Client::Document answer,
                authorized("/blobs/sha256:" + digest, [&](const http::Request& request) {
                  return client_.fetch(request, kLargestJson, kPatience);
                }));
  if (answer.response.status() != 200) {
    return refused(answer.response, answer.body, "the configuration of " + to_string(reference_));
  }
  if (sha256(answer.body) != digest) {
    return wrong_digest("the configuration of " + to_string(reference_));
  }
  return std::move(answer.body);
}

Status Registry::blob(const std::string& digest, std::uint64_t offset, const BlobSink& sink) {
  bool began = false;
  const auto take = [&](const http::Response& response, std::string_view bytes,
                        std::string& refusal) -> Status {
    if (response.status() != 200 && response.status() != 206) {
      refusal.append(bytes.substr(0, kLargestAnswer - std::min(kLargestAnswer, refusal.size())));
      return {};
    }
    if (!std::exchange(began, true)) {
      const std::string* range = response.head.find("content-range");
      const bool from_offset = response.status() == 206 && range != nullptr &&
                               range->starts_with("bytes " + std::to_string(offset) + "-");
      if (response.status() == 206 && !from_offset) {
        return Error{Code::kDenied, 0, "the registry sends another part than was asked for", {}};
      }
      if (!from_offset) {
        CARREL_TRY(sink.restart());
      }
    }
    return sink.write(bytes);
  };
  CARREL_ASSIGN(
      const Client::Document answer,
      authorized("/blobs/sha256:" + digest, [&](http::Request request) -> Result<Client::Document> {
        request.offset = offset;
        std::string refusal;
        CARREL_ASSIGN(http::Response response, client_.send(request, [&](const http::Response& from,
                                                                         std::string_view bytes) {
          return take(from, bytes, refusal);
        }));
        return Client::Document{std::move(response), std::move(refusal)};
      }));
  if (answer.response.status() == 416) {
    CARREL_TRY(sink.restart());
    return Error{Code::kUnavailable, 0, "the registry cannot go on where it stopped", {}};
  }
  if (answer.response.status() != 200 && answer.response.status() != 206) {
    return refused(answer.response, answer.body, "a layer of " + to_string(reference_));
  }
  return {};
}

}  // namespace carrel::storage
