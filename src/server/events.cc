#include "storage/events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/files.h"
#include "http/event_stream.h"
#include "server/handlers.h"
#include "server/service.h"

// What happens to sandboxes, from the log that everybody writes.
namespace carrel::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 200;
constexpr std::chrono::seconds kSilence{15};
constexpr const char* kFile = "events.jsonl";

// The lines that are added to the log. Where that is cut to its newer half there is another file,
// which is read from its beginning up to what was read last.
class Tail {
 public:
  enum class From { kStart, kEnd };

  Tail(const storage::Home& home, From from) : home_(home) {
    open();
    if (from == From::kEnd && file_.valid()) {
      offset_ = ::lseek(file_.get(), 0, SEEK_END);
    }
  }

  std::vector<std::string> next() {
    std::vector<std::string> lines = read_lines();
    struct stat named{};
    struct stat held{};
    const bool there = ::fstatat(home_.directory(), kFile, &named, AT_SYMLINK_NOFOLLOW) == 0;
    const bool same = there && file_.valid() && ::fstat(file_.get(), &held) == 0 &&
                      named.st_ino == held.st_ino && named.st_dev == held.st_dev;
    if (there && !same) {
      const std::string last = last_;
      open();
      std::vector<std::string> anew = read_lines();
      const auto known = std::find(anew.begin(), anew.end(), last);
      lines.insert(lines.end(), known == anew.end() ? anew.begin() : known + 1, anew.end());
    }
    return lines;
  }

 private:
  void open() {
    auto file = open_at(home_.directory(), kFile, O_RDONLY | O_NOFOLLOW);
    file_ = file.ok() ? std::move(file.value()) : UniqueFd();
    offset_ = 0;
    rest_.clear();
  }

  std::vector<std::string> read_lines() {
    std::vector<std::string> lines;
    std::vector<char> piece(64U << 10);
    while (file_.valid()) {
      const ssize_t size = ::pread(file_.get(), piece.data(), piece.size(), offset_);
      if (size <= 0) {
        break;
      }
      offset_ += size;
      rest_.append(piece.data(), static_cast<std::size_t>(size));
      for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
        lines.push_back(rest_.substr(0, end));
        rest_.erase(0, end + 1);
      }
    }
    if (!lines.empty()) {
      last_ = lines.back();
    }
    return lines;
  }

  const storage::Home& home_;
  UniqueFd file_;
  off_t offset_ = 0;
  std::string rest_;
  std::string last_;
};

// The line as an event, if it is one of a sandbox that the caller has and asked for.
std::string event_of(Request& request, const std::string& line, const std::string& wanted) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) {
    return {};
  }
  const std::string id = object.value("sandbox", "");
  if (!wanted.empty() && id != wanted) {
    return {};
  }
  if (!request.caller.is_operator() && !request.service.manager->find(request.caller, id).ok()) {
    return {};
  }
  return http::write_event({"", object.value("event", "event"), line});
}

}  // namespace

Status get_events(Request& request) {
  const std::string& wanted = request.query["sandbox"];
  const std::string& past = request.query["past"];
  if (!past.empty() && past != "true" && past != "false") {
    return Error{Code::kInvalid, 0, "'past' must be true or false", {}};
  }
  if (!wanted.empty()) {
    CARREL_TRY(request.service.manager->find(request.caller, wanted));
  }
  CARREL_ASSIGN(const UniqueFd watch, watch_client(request.socket));
  Tail tail(request.service.manager->home(),
            past == "true" ? Tail::From::kStart : Tail::From::kEnd);
  CARREL_TRY(request.connection.begin(200, {{"content-type", "text/event-stream"},
                                            {"cache-control", "no-store"},
                                            {"x-content-type-options", "nosniff"}}));
  CARREL_TRY(request.connection.send(http::kNoEvent));
  Clock::time_point said = Clock::now();
  while (!request.service.stopping) {
    for (const std::string& line : tail.next()) {
      const std::string event = event_of(request, line, wanted);
      if (!event.empty()) {
        said = Clock::now();
        CARREL_TRY(request.connection.send(event));
      }
    }
    pollfd wait{watch.get(), POLLIN, 0};
    if (::poll(&wait, 1, kTickMs) > 0) {
      return Error{Code::kGone, 0, "the client has left", {}};
    }
    if (Clock::now() - said > kSilence) {
      said = Clock::now();
      CARREL_TRY(request.connection.send(http::kNoEvent));
    }
  }
  return request.connection.finish();
}

}  // namespace carrel::server
