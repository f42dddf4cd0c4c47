#include "backends/docker/engine.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "backends/docker/working.h"
#include "base/unique_fd.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kScheme = "unix://";
constexpr char kUsualAddress[] = "unix:///var/run/docker.sock";
constexpr std::size_t kLargestAnswer = 8U << 20;
constexpr std::chrono::milliseconds kEngineLook{100};

Error unlike(const std::string& what) {
  return Error{Code::kUnavailable, 0, "the Docker engine sent a malformed answer to " + what, {}};
}

Result<Json> object_of(const std::string& what, const Answer& answer) {
  Json body = Json::parse(answer.body, nullptr, false);
  if (!body.is_object()) {
    return unlike(what);
  }
  return body;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_true(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// Gives a call up when the engine that it was made to is found out. Whoever gets an answer soon
// never starts to look.
class Watch {
 public:
  using IsLost = std::function<bool()>;
  Watch(std::chrono::milliseconds every, int cancel, IsLost is_lost)
      : every_(every), cancel_(cancel), is_lost_(std::move(is_lost)), thread_([this] { run(); }) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, every_, [this] { return over_; })) {
      lock.unlock();
      const bool lost = is_lost_();
      lock.lock();
      if (lost) {
        (void)::eventfd_write(cancel_, 1);
        return;
      }
    }
  }

  std::chrono::milliseconds every_;
  int cancel_;
  IsLost is_lost_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

std::string filters(const std::vector<std::string>& labels) {
  return http::encode_query(Json{{"label", labels}}.dump());
}

}  // namespace

std::string usual_address() {
  const char* const given = std::getenv("DOCKER_HOST");
  return given == nullptr || *given == '\0' ? kUsualAddress : given;
}

Result<Engine> Engine::at(const std::string& address) {
  if (!address.starts_with(std::string(kScheme) + "/")) {
    return Error{Code::kUnsupported, 0,
                 "DOCKER_HOST is '" + address + "', and only an engine on this host can be used",
                 "name its socket: DOCKER_HOST=unix:///path"};
  }
  return Engine(address.substr(kScheme.size()));
}

Result<Answer> Engine::ask(http::Method method, const std::string& target, std::string body,
                           std::chrono::milliseconds patience) const {
  const UniqueFd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancel.valid()) {
    return system_error("make an event descriptor");
  }
  http::ClientOptions options;
  options.unix_socket = socket_;
  options.connect_patience = options.idle_patience = patience;
  options.cancel = cancel.get();
  http::Client client(std::move(options));
  http::Request request;
  request.method = method;
  request.url = {http::Scheme::kHttp, "localhost", 80, target};
  if (!body.empty()) {
    request.headers.push_back(
        {"Content-Type", body.front() == '{' ? "application/json" : "application/x-tar"});
  }
  request.body = std::move(body);
  request.deadline = http::Clock::now() + patience;
  auto document = [&] {
    Working working(socket_, owner());
    const Watch watch(kEngineLook, cancel.get(), [&working] { return working.quiet() >= kQuiet; });
    return client.fetch(request, kLargestAnswer, patience);
  }();
  if (document.ok()) {
    return Answer{document->response.status(), std::move(document->body)};
  }
  return judge(document.error(), cancel.get());
}

Error Engine::judge(Error error, int cancel) const {
  if (error.error_number == EACCES || error.error_number == EPERM) {
    return explain(std::move(error));
  }
  eventfd_t given_up = 0;
  const bool idle = ::eventfd_read(cancel, &given_up) == 0;
  silent_ = idle || error.code == Code::kTimeout;
  return idle ? hung() : explain(std::move(error));
}

Result<UniqueFd> Engine::attach(const std::string& container) const {
  const UniqueFd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancel.valid()) {
    return system_error("make an event descriptor");
  }
  http::ClientOptions options;
  options.unix_socket = socket_;
  options.idle_patience = kQuestion;
  options.cancel = cancel.get();
  http::Client client(std::move(options));
  http::Request request;
  request.method = http::Method::kPost;
  request.url = {http::Scheme::kHttp, "localhost", 80,
                 "/containers/" + container + "/attach?stream=1&stdin=1&stdout=1"};
  auto line = [&] {
    Working working(socket_, owner());
    const Watch watch(kEngineLook, cancel.get(), [&working] { return working.quiet() >= kQuiet; });
    return client.upgrade(request, "tcp");
  }();
  return line.ok() ? std::move(line) : judge(line.error(), cancel.get());
}

Error Engine::hung() const {
  return Error{Code::kTimeout, 0,
               "the Docker engine at " + socket_ + " did not answer and does nothing",
               "start it, or name its socket: DOCKER_HOST=unix:///path"};
}

Result<int> Engine::stream(http::Method method, const std::string& target,
                           std::chrono::milliseconds idle, const Take& take) const {
  const UniqueFd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancel.valid()) {
    return system_error("make an event descriptor");
  }
  http::ClientOptions options;
  options.unix_socket = socket_;
  options.connect_patience = kQuestion;
  options.idle_patience = idle;
  options.cancel = cancel.get();
  http::Client client(std::move(options));
  http::Request request;
  request.method = method;
  request.url = {http::Scheme::kHttp, "localhost", 80, target};
  // It waits for a registry without a word, and can still be asked how it is.
  constexpr std::chrono::milliseconds kLookAgain{300};
  const Engine asked(socket_);
  const Watch watch(kLookAgain, cancel.get(), [&asked] {
    (void)asked.ask(http::Method::kGet, "/_ping", {}, kWork);
    return asked.silent();
  });
  Status refused;
  auto response = client.send(request, [&](const http::Response& answer, std::string_view bytes) {
    refused = take(answer.status(), bytes);
    return refused;
  });
  if (!refused.ok()) {
    return refused.error();
  }
  eventfd_t given_up = 0;
  if (!response.ok() && ::eventfd_read(cancel.get(), &given_up) == 0) {
    return hung();
  }
  return response.ok() ? Result<int>(response->status()) : explain(response.error());
}

Error Engine::explain(Error error) const {
  if (error.error_number == EACCES || error.error_number == EPERM) {
    return Error{Code::kDenied, error.error_number, "use the Docker engine at " + socket_,
                 "it is for root and the members of its group, usually 'docker'"};
  }
  // "ask http://localhost/…: " is of no use to anybody.
  if (const std::size_t end = error.message.find(": "); error.message.starts_with("ask ")) {
    error.message.erase(0, end == std::string::npos ? 0 : end + 2);
  }
  const bool slow = error.code == Code::kTimeout;
  error.message =
      "the Docker engine at " + socket_ +
      (slow ? std::string(" did not answer in time") : std::string(" does not answer")) +
      (slow || error.error_number != 0 ? "" : ": " + error.message);
  error.code = slow ? Code::kTimeout : Code::kUnavailable;
  error.hint = "start it, or name its socket: DOCKER_HOST=unix:///path";
  return error;
}

uid_t Engine::owner() const {
  struct stat info{};
  return ::stat(socket_.c_str(), &info) == 0 ? info.st_uid : 0;
}

Error refusal(const std::string& what, const Answer& answer) {
  const Json body = Json::parse(answer.body, nullptr, false);
  std::string said = body.is_object() ? text_of(body, "message") : std::string();
  constexpr std::size_t kLongest = 600;
  said.resize(std::min(said.size(), kLongest));
  for (char& c : said) {
    c = c < ' ' || c > '~' ? ' ' : c;
  }
  const bool full = said.find("no space left") != std::string::npos;
  return Error{full ? Code::kResource : Code::kUnsupported, 0,
               "Failed to create sandbox: the Docker engine could not " + what + ": " +
                   (said.empty() ? "status " + std::to_string(answer.status) : said),
               full ? "make room where the engine keeps its data" : "run 'carrel doctor'"};
}

bool Facts::rootless() const {
  return std::any_of(security.begin(), security.end(), [](const std::string& option) {
    return option == "name=rootless" || option.starts_with("name=rootless,");
  });
}

LimitsHeld Facts::limits() const {
  if (!rootless()) {
    return {};
  }
  // It may not use those of version 1, whatever it tells about the host's.
  return groups == "2" ? holds : LimitsHeld{false, false, false};
}

Result<Facts> Engine::facts() const {
  CARREL_ASSIGN(const Answer told, ask(http::Method::kGet, "/info", {}, kQuestion));
  if (!told.ok()) {
    return refusal("tell what it is", told);
  }
  CARREL_ASSIGN(const Json info, object_of("/info", told));
  Facts facts;
  facts.version = text_of(info, "ServerVersion");
  facts.usual_runtime = text_of(info, "DefaultRuntime");
  facts.groups = text_of(info, "CgroupVersion");
  const bool none = text_of(info, "CgroupDriver") == "none";
  facts.holds = {!none && is_true(info, "MemoryLimit"), !none && is_true(info, "CpuCfsQuota"),
                 !none && is_true(info, "PidsLimit")};
  facts.owner = owner();
  if (const auto found = info.find("Runtimes"); found != info.end() && found->is_object()) {
    for (const auto& [name, runtime] : found->items()) {
      facts.runtimes.push_back(name);
    }
  }
  if (const auto found = info.find("SecurityOptions"); found != info.end() && found->is_array()) {
    for (const Json& option : *found) {
      if (option.is_string()) {
        facts.security.push_back(option.get<std::string>());
      }
    }
  }
  if (const auto found = info.find("NCPU"); found != info.end() && found->is_number_unsigned()) {
    facts.cpus = found->get<unsigned>();
  }
  if (text_of(info, "OSType") != "linux" || facts.version.empty()) {
    return Error{Code::kUnsupported, 0, "the Docker engine does not run Linux containers", {}};
  }
  CARREL_ASSIGN(const Answer versions, ask(http::Method::kGet, "/version", {}, kQuestion));
  CARREL_ASSIGN(const Json version, object_of("/version", versions));
  if (const auto parts = version.find("Components"); parts != version.end() && parts->is_array()) {
    for (const Json& part : *parts) {
      if (part.is_object() && text_of(part, "Name") == "runc") {
        facts.runc = text_of(part, "Version");
      }
      if (part.is_object() && text_of(part, "Name") == "Podman Engine") {
        facts.kind = EngineKind::kPodman;
        if (facts.owner != 0 && !facts.rootless()) {  // not every version tells
          facts.security.emplace_back("name=rootless");
        }
        // It tells the path of one that it was told by its path.
        facts.usual_runtime.erase(0, facts.usual_runtime.rfind('/') + 1);
      }
    }
  }
  return facts;
}

Result<Json> Engine::inspect(const std::string& container) const {
  CARREL_ASSIGN(const Answer answer,
                ask(http::Method::kGet, "/containers/" + container + "/json", {}, kQuestion));
  if (answer.status == 404) {
    return Error{Code::kNotFound, 0,
                 "Failed to create sandbox: its container is not there any more",
                 "somebody removed it, or it ended by itself"};
  }
  if (!answer.ok()) {
    return refusal("tell about the container", answer);
  }
  return object_of("an inspection", answer);
}

Status Engine::remove(const std::string& container) const {
  if (silent_) {
    return Error{Code::kTimeout, 0, "the Docker engine at " + socket_ + " did not answer", {}};
  }
  CARREL_ASSIGN(const Answer answer,
                ask(http::Method::kDelete, "/containers/" + container + "?force=1&v=1", {}, kWork));
  // 409: it is being removed already.
  return answer.ok() || answer.status == 404 || answer.status == 409
             ? Status()
             : refusal("remove a container", answer);
}

Result<std::vector<Engine::Listed>> Engine::labelled(const std::vector<std::string>& labels,
                                                     const std::string& told) const {
  CARREL_ASSIGN(
      const Answer answer,
      ask(http::Method::kGet, "/containers/json?all=1&filters=" + filters(labels), {}, kQuestion));
  const Json body = Json::parse(answer.body, nullptr, false);
  if (!answer.ok() || !body.is_array()) {
    return refusal("list its containers", answer);
  }
  std::vector<Listed> list;
  for (const Json& one : body) {
    if (!one.is_object() || text_of(one, "Id").empty()) {
      continue;
    }
    const auto own = one.find("Labels");
    list.push_back({text_of(one, "Id"), text_of(one, "State"),
                    own != one.end() && own->is_object() ? text_of(*own, told.c_str()) : ""});
  }
  return list;
}

Status Engine::import_image(const std::string& name, const std::string& tag,
                            const std::string& label, std::string archive) const {
  CARREL_ASSIGN(const Answer answer,
                ask(http::Method::kPost,
                    "/images/create?fromSrc=-&repo=" + http::encode_query(name) +
                        "&tag=" + http::encode_query(tag) +
                        "&changes=" + http::encode_query("LABEL " + label),
                    std::move(archive), kWork));
  // Whatever goes wrong after its first line still has the status of success.
  constexpr std::string_view kDigest = "\"sha256:";
  constexpr std::size_t kHex = 64;
  const std::size_t at = answer.body.rfind(kDigest);
  if (!answer.ok() || at == std::string::npos ||
      answer.body.find("\"errorDetail\"") != std::string::npos) {
    return refusal("make an image", answer);
  }
  // Not every engine takes the tag that an import names.
  const std::string digest = answer.body.substr(at + kDigest.size(), kHex);
  CARREL_ASSIGN(const Answer named,
                ask(http::Method::kPost,
                    "/images/" + http::encode_query(digest) +
                        "/tag?repo=" + http::encode_query(name) + "&tag=" + http::encode_query(tag),
                    {}, kWork));
  return named.ok() ? Status() : refusal("name an image", named);
}

}  // namespace carrel::docker
