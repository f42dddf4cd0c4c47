#include "backends/docker/images.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "backends/docker/engine.h"
#include "base/files.h"
#include "http/client.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kIdle{
    60};  // a registry may be slow, and an engine says nothing then
constexpr std::size_t kLongestLine = 64U << 10;
constexpr std::size_t kLongestText = 300;

std::string printable_text(const Json& object, const char* key) {
  const auto found = object.find(key);
  std::string text = found != object.end() && found->is_string() ? found->get<std::string>() : "";
  text.resize(std::min(text.size(), kLongestText));
  for (char& c : text) {
    c = c < ' ' || c > '~' ? ' ' : c;
  }
  return text;
}

std::uint64_t number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

Error not_there(const std::string& name, const std::string& hint) {
  return Error{Code::kNotFound, 0, "the Docker engine has no image '" + name + "'", hint};
}

// "NAME:TAG" or "NAME@DIGEST"; a colon before a slash is a port.
bool has_tag(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return name.find_first_of(":@", slash == std::string::npos ? 0 : slash) != std::string::npos;
}

}  // namespace

void PullNews::line(std::string_view text) {
  const Json news = Json::parse(text, nullptr, false);
  if (!news.is_object()) {
    return;
  }
  if (const std::string error = printable_text(news, "error"); !error.empty()) {
    error_ = error;
  }
  ImageProgress progress;
  progress.step = printable_text(news, "status");
  if (const auto detail = news.find("progressDetail");
      detail != news.end() && detail->is_object()) {
    progress.done = number_in(*detail, "current");
    progress.whole = number_in(*detail, "total");
  }
  if (listener_ && !progress.step.empty()) {
    listener_(progress);
  }
}

Status PullNews::take(std::string_view bytes) {
  rest_ += bytes;
  for (std::size_t end; (end = rest_.find('\n')) != std::string::npos;) {
    line(std::string_view(rest_).substr(0, end));
    rest_.erase(0, end + 1);
  }
  if (rest_.size() > kLongestLine) {
    return Error{Code::kUnavailable, 0, "the Docker engine sent a line without an end", {}};
  }
  return {};
}

Status pull(const std::string& address, const std::string& name, const ImageListener& listener) {
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
  PullNews news(listener);
  const std::string whole = has_tag(name) ? name : name + ":latest";
  CARREL_ASSIGN(
      const int status,
      engine.stream(http::Method::kPost, "/images/create?fromImage=" + http::encode_query(whole),
                    kIdle, [&](int, std::string_view bytes) { return news.take(bytes); }));
  (void)news.take("\n");
  if (status == 404) {
    return not_there(name, "its registry has none either");
  }
  if (status != 200 || !news.error().empty()) {
    return Error{Code::kUnavailable,
                 0,
                 "the Docker engine could not pull '" + name + "': " +
                     (news.error().empty() ? "status " + std::to_string(status) : news.error()),
                 {}};
  }
  return {};
}

Status save(const std::string& address, const std::string& name, int file,
            const ImageListener& listener) {
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
  ImageProgress progress{"getting '" + name + "' from the engine", 0, 0};
  std::string said;
  CARREL_ASSIGN(const int status,
                engine.stream(http::Method::kGet, "/images/" + http::encode_query(name) + "/get",
                              kIdle, [&](int answered, std::string_view bytes) -> Status {
                                if (answered != 200) {
                                  said += bytes.substr(0, kLongestText);
                                  said.resize(std::min(said.size(), kLongestText));
                                  return {};
                                }
                                progress.done += bytes.size();
                                if (listener) {
                                  listener(progress);
                                }
                                return write_all(file, bytes);
                              }));
  // An engine that has none says so in several ways.
  if (status == 404 ||
      (status != 200 && (said.find("o such image") != std::string::npos ||
                         said.find("not known") != std::string::npos ||
                         said.find("eference does not exist") != std::string::npos))) {
    return not_there(name, "'carrel image pull docker:" + name + "' has it get one");
  }
  return status == 200 ? Status() : refusal("save '" + name + "'", Answer{status, said});
}

}  // namespace carrel::docker
