#include "sandbox/files.h"

#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/code_name.h"
#include "http/event_stream.h"
#include "sandbox/file_json.h"
#include "sandbox/tree_tar.h"
#include "server/byte_range.h"
#include "server/handlers.h"
#include "server/service.h"
#include "storage/events.h"

// The files of a sandbox, through a worker inside that has the workload's rights.
namespace carrel::server {
namespace {

using namespace std::chrono_literals;
using sandbox::FileSummary;

constexpr std::chrono::milliseconds kTimeout = 1h;
constexpr std::size_t kPiece = 128U << 10;
constexpr std::uint64_t kMostListed = 10'000;

// One request's work on files: checked before anything is asked, and noted in the log afterwards.
class Session {
 public:
  static Result<Session> open(Request& request, const std::vector<std::string>& paths) {
    manager::Manager& manager = *request.service.manager;
    for (const std::string& path : paths) {
      if (Status checked = sandbox::check_path(path); !checked.ok()) {
        if (checked.error().code == Code::kDenied &&
            manager.find(request.caller, request.id()).ok()) {
          storage::add_event(manager.home(),
                             storage::path_event(request.id(), path, "potentially unsafe path"));
        }
        return checked.error();
      }
    }
    CARREL_ASSIGN(manager::Manager::Visit visit, manager.visit(request.caller, request.id()));
    CARREL_ASSIGN(sandbox::Files files, sandbox::Files::open(std::move(visit.stream()), kTimeout));
    return Session(manager, std::move(visit), std::move(files));
  }

  sandbox::Files& files() { return files_; }
  // Returns what was given.
  template <typename T>
  Result<T> note(std::string_view action, std::string_view path, Result<T> done) {
    storage::add_event(manager_->home(),
                       storage::file_event(visit_.record().id, action, path,
                                           done.ok() ? "" : code_name(done.error().code)));
    return done.ok() ? std::move(done)
                     : Result<T>(manager_->explain_end(visit_.record().id, done.error()));
  }

 private:
  Session(manager::Manager& manager, manager::Manager::Visit visit, sandbox::Files files)
      : manager_(&manager), visit_(std::move(visit)), files_(std::move(files)) {}

  manager::Manager* manager_;
  manager::Manager::Visit visit_;
  sandbox::Files files_;
};

Json summary_json(const std::string& path, const FileSummary& summary,
                  const std::vector<sandbox::LeftOutFile>& more = {}) {
  Json object;
  sandbox::add_bytes(object, "path", path);
  object["entries"] = summary.entries;
  object["bytes"] = summary.bytes;
  object["line"] = summary.value;
  Json left_out = Json::array();
  for (const auto* list : {&summary.left_outs, &more}) {
    for (const sandbox::LeftOutFile& file : *list) {
      Json row;
      sandbox::add_bytes(row, "path", file.path);
      row["reason"] = file.reason;
      left_out.push_back(std::move(row));
    }
  }
  object["left_out"] = std::move(left_out);
  return object;
}

Result<std::optional<unsigned>> parse_mode(const std::optional<std::string>& text) {
  if (!text.has_value() || text->empty()) {
    return std::optional<unsigned>();
  }
  unsigned mode = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), mode, 8);
  if (error != std::errc() || end != text->data() + text->size() || mode > 01777) {
    return Error{Code::kInvalid, 0, "'" + *text + "' is not a mode",
                 "octal digits up to 1777, such as 644"};
  }
  return std::optional<unsigned>(mode);
}

Result<sandbox::Depth> depth_of(const std::string& text) {
  if (!text.empty() && text != "true" && text != "false") {
    return Error{Code::kInvalid, 0, "'recursive' must be true or false", {}};
  }
  return text == "true" ? sandbox::Depth::kAll : sandbox::Depth::kOne;
}

// Sends what comes; the answer begins with the first of it, so that an error before that is one.
class Download {
 public:
  Download(Request& request, std::string type, int status = 200,
           std::vector<http::Header> more = {})
      : request_(request), type_(std::move(type)), status_(status), more_(std::move(more)) {}

  Status take(std::string_view data) {
    gathered_.append(data);
    return gathered_.size() < kPiece ? Status() : flush();
  }
  Status finish() {
    CARREL_TRY(flush());
    return request_.connection.finish();
  }

 private:
  Status flush() {
    if (!begun_) {
      begun_ = true;
      std::vector<http::Header> headers = {{"content-type", type_},
                                           {"cache-control", "no-store"},
                                           {"x-content-type-options", "nosniff"},
                                           {"content-security-policy", "sandbox"}};
      headers.insert(headers.end(), more_.begin(), more_.end());
      CARREL_TRY(request_.connection.begin(status_, headers));
    }
    CARREL_TRY(request_.connection.send(gathered_));
    gathered_.clear();
    return {};
  }

  Request& request_;
  std::string type_;
  int status_;
  std::vector<http::Header> more_;
  std::string gathered_;
  bool begun_ = false;
};

sandbox::Files::Source body_of(Request& request) {
  return [&request](char* place, std::size_t size) -> Result<std::size_t> {
    return request.connection.read_body({place, size});
  };
}

// What a file is, as long as nobody writes to it; empty where there is none.
std::string etag_of(const Result<sandbox::FileInfo>& info) {
  return info.ok() ? "\"" + std::to_string(info.value().size) + "-" +
                         std::to_string(info.value().modified_ns) + "\""
                   : std::string();
}

bool names(const std::string* header, const std::string& etag) {
  return header != nullptr &&
         (*header == "*" ? !etag.empty()
                         : !etag.empty() && header->find(etag) != std::string::npos);
}

// Whether the file is the one that the client means to change: If-Match and If-None-Match.
bool is_as_expected(Request& request, sandbox::Files& files, const std::string& path) {
  const http::RequestHead& head = request.connection.head();
  const std::string* match = head.find("if-match");
  const std::string* none = head.find("if-none-match");
  if (match == nullptr && none == nullptr) {
    return true;
  }
  const std::string etag = etag_of(files.stat(path));
  return (match == nullptr || names(match, etag)) && !names(none, etag);
}

// What 'Range' asks for, unless the query does, or the file is not the one of 'If-Range' any more.
ByteRange wanted_part(Request& request, const std::string& etag, std::uint64_t size) {
  const http::RequestHead& head = request.connection.head();
  const std::string* range = head.find("range");
  const std::string* condition = head.find("if-range");
  if (range == nullptr || (condition != nullptr && *condition != etag) ||
      request.query.contains("offset") || request.query.contains("count")) {
    return {};
  }
  return parse_byte_range(*range, size);
}

// An upload that goes on where it broke off: the file has so many bytes of it.
Status check_offset(Request& request, sandbox::Files& files, const std::string& path) {
  if (!request.query.contains("offset")) {
    return {};
  }
  CARREL_ASSIGN(const std::uint64_t offset,
                number_in(request.query, "offset", 0, protocol::kEverything - 1));
  auto info = files.stat(path);
  const std::uint64_t size = info.ok() ? info->size : 0;
  if (size != offset) {
    return Error{Code::kConflict, 0,
                 "the file has " + std::to_string(size) + " bytes, not " + std::to_string(offset),
                 "go on from there"};
  }
  return {};
}

}  // namespace

Status read_file(Request& request) {
  const std::string path = request.query["path"];
  sandbox::ReadRange range;
  CARREL_ASSIGN(range.from, number_in(request.query, "offset", 0, protocol::kEverything - 1));
  CARREL_ASSIGN(range.count,
                number_in(request.query, "count", protocol::kEverything, protocol::kEverything));
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  auto info = session.files().stat(path);
  const std::string etag = etag_of(info);
  if (names(request.connection.head().find("if-none-match"), etag)) {
    return request.connection.answer({304, {{"etag", etag}, {"cache-control", "no-store"}}, {}});
  }
  int status = 200;
  std::vector<http::Header> headers;
  if (info.ok()) {
    headers = {{"etag", etag}};
  }
  if (info.ok() && info->kind == protocol::FileKind::kFile) {
    headers.push_back({"accept-ranges", "bytes"});
    const std::string size = std::to_string(info->size);
    const ByteRange part = wanted_part(request, etag, info->size);
    if (part.kind == ByteRange::Kind::kUnsatisfiable) {
      http::Answer answer =
          problem(416, code_name(Code::kInvalid), "the file has " + size + " bytes");
      answer.headers.push_back({"content-range", "bytes */" + size});
      return request.connection.answer(answer);
    }
    if (part.kind == ByteRange::Kind::kPart) {
      range.from = part.from;
      range.count = part.count;
      status = 206;
      headers.push_back({"content-range", "bytes " + std::to_string(part.from) + "-" +
                                              std::to_string(part.from + part.count - 1) + "/" +
                                              size});
    }
  }
  Download download(request, "application/octet-stream", status, std::move(headers));
  CARREL_TRY(
      session.note("read", path, session.files().read(path, range, [&](std::string_view data) {
        return download.take(data);
      })));
  return download.finish();
}

Status write_file(Request& request) {
  const std::string path = request.query["path"];
  const std::string& exists = request.query["exists"];
  sandbox::WriteOptions options;
  CARREL_ASSIGN(options.mode, parse_mode(request.query["mode"]));
  if (exists == "fail") {
    options.old = sandbox::WriteOptions::Old::kRefused;
  } else if (exists == "need") {
    options.old = sandbox::WriteOptions::Old::kNeeded;
  } else if (!exists.empty() && exists != "replace" && exists != "append") {
    return Error{Code::kInvalid, 0, "'exists' must be replace, fail, need or append", {}};
  }
  if (request.query.contains("offset") && exists != "append") {
    return Error{Code::kInvalid, 0, "'offset' is for exists=append", {}};
  }
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  if (!is_as_expected(request, session.files(), path)) {
    return request.connection.answer(
        problem(412, "precondition_failed", "the file is not the one that was expected"));
  }
  CARREL_TRY(check_offset(request, session.files(), path));
  CARREL_ASSIGN(
      const FileSummary summary,
      session.note("write", path,
                   exists == "append" ? session.files().append(path, body_of(request))
                                      : session.files().write(path, options, body_of(request))));
  return reply(request, 200, summary_json(path, summary));
}

Status stat_file(Request& request) {
  const std::string path = request.query["path"];
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  CARREL_ASSIGN(sandbox::FileInfo info, session.files().stat(path));
  info.path = path;
  return reply(request, 200, sandbox::to_json(info));
}

Status list_files(Request& request) {
  const std::string path = request.query["path"];
  sandbox::Selection selection;
  CARREL_ASSIGN(selection.depth, depth_of(request.query["recursive"]));
  CARREL_ASSIGN(selection.most, number_in(request.query, "limit", kMostListed, kMostListed));
  selection.pattern = request.query["pattern"];
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  Json list = Json::array();
  CARREL_TRY(session.files().list(path, selection, [&](const sandbox::FileInfo& info) {
    list.push_back(sandbox::to_json(info));
    return Status();
  }));
  return reply(request, 200, {{"files", list}});
}

Status watch_files(Request& request) {
  const std::string path = request.query["path"];
  CARREL_ASSIGN(const sandbox::Depth depth, depth_of(request.query["recursive"]));
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  CARREL_ASSIGN(const UniqueFd client, watch_client(request.socket));
  bool begun = false;
  std::chrono::steady_clock::time_point said = std::chrono::steady_clock::now();
  // CRITICAL: a sandbox that always changes something must not keep the daemon from stopping.
  const auto tell = [&](std::string_view event) -> Status {
    if (request.service.stopping) {
      return Error{Code::kGone, 0, "the daemon stops", {}};
    }
    said = std::chrono::steady_clock::now();
    return request.connection.send(event);
  };
  sandbox::Files::Watcher watcher;
  watcher.begun = [&]() -> Status {
    begun = true;
    CARREL_TRY(begin_events(request));
    return tell(http::write_event({"", "watching", "{}"}));
  };
  watcher.changed = [&](const protocol::FileChange& change) {
    return tell(http::write_event({"", "change", sandbox::to_json(change).dump()}));
  };
  watcher.quiet = [&]() -> Status {
    if (request.service.stopping || client_left(client)) {
      return Error{Code::kGone, 0, "nobody listens any more", {}};
    }
    return std::chrono::steady_clock::now() - said > kSilence ? tell(http::kNoEvent) : Status();
  };
  const Status watched = session.files().watch(path, depth, watcher);
  if (!begun) {
    return watched.ok() ? Status()
                        : request.service.manager->explain_end(request.id(), watched.error());
  }
  if (!request.service.stopping && !client_left(client) && !watched.ok()) {
    const Error error = request.service.manager->explain_end(request.id(), watched.error());
    CARREL_TRY(tell(http::write_event({"", "error", problem(error).body.substr(0, 4096)})));
  }
  return request.connection.finish();
}

Status search_files(Request& request) {
  Fields fields(request.body);
  const std::string path = fields.needed_text("path");
  sandbox::Search search;
  search.text = fields.needed_text("text");
  search.ignore_case = fields.flag("ignore_case").value_or(false);
  sandbox::Selection selection;
  selection.depth = sandbox::Depth::kAll;
  selection.pattern = fields.text("pattern").value_or("");
  selection.excluded = fields.texts("exclude").value_or(std::vector<std::string>());
  selection.skip_usual = fields.flag("skip_usual").value_or(false);
  selection.most = fields.number("limit", kMostListed).value_or(1000);
  CARREL_TRY(fields.finish());
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  Json list = Json::array();
  CARREL_TRY(session.files().search(path, search, selection, [&](const protocol::FileMatch& match) {
    Json row;
    sandbox::add_bytes(row, "path", match.path);
    row["line"] = match.line;
    sandbox::add_bytes(row, "text", match.text);
    list.push_back(std::move(row));
    return Status();
  }));
  return reply(request, 200, {{"matches", list}});
}

Status change_files(Request& request) {
  const std::string path_of_route = request.connection.head().path;
  const std::string action = path_of_route.substr(path_of_route.rfind('/') + 1);
  Fields fields(request.body);
  const std::string path = fields.needed_text("path");
  const bool two = action == "move" || action == "copy";
  const std::string to = two ? fields.needed_text("to") : std::string();
  const std::string old_text = action == "replace" ? fields.needed_text("old") : std::string();
  const std::string new_text = action == "replace" ? fields.needed_text("new") : std::string();
  const bool all = action == "remove" && fields.flag("recursive").value_or(false);
  std::optional<std::string> mode_text;
  if (action == "mkdir" || action == "chmod") {
    mode_text = fields.text("mode");
  }
  CARREL_TRY(fields.finish());
  CARREL_ASSIGN(const std::optional<unsigned> mode, parse_mode(mode_text));
  if (action == "chmod" && !mode.has_value()) {
    return Error{Code::kInvalid, 0, "'mode' is missing", {}};
  }
  CARREL_ASSIGN(Session session,
                Session::open(request, two ? std::vector{path, to} : std::vector{path}));
  sandbox::Files& files = session.files();
  const auto perform = [&]() -> Result<FileSummary> {
    if (action == "mkdir") {
      return files.make_directory(path, mode);
    }
    if (action == "chmod") {
      return files.change_mode(path, *mode);
    }
    if (action == "move") {
      return files.move(path, to);
    }
    if (action == "copy") {
      return files.copy(path, to);
    }
    if (action == "replace") {
      return files.replace(path, old_text, new_text);
    }
    return files.remove(path, all ? sandbox::Depth::kAll : sandbox::Depth::kOne);
  };
  CARREL_ASSIGN(const FileSummary summary, session.note(action, path, perform()));
  return reply(request, 200, summary_json(path, summary));
}

Status get_archive(Request& request) {
  const std::string path = request.query["path"];
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  Download download(request, "application/x-tar");
  sandbox::TarSink tar("", [&](std::string_view data) { return download.take(data); });
  CARREL_TRY(session.note("archive out", path, session.files().pack(path, tar)));
  CARREL_TRY(tar.finish());
  return download.finish();
}

Status put_archive(Request& request) {
  const std::string path = request.query["path"];
  CARREL_ASSIGN(Session session, Session::open(request, {path}));
  std::vector<sandbox::LeftOutFile> left_out;
  static const sandbox::Progress kQuiet;
  CARREL_ASSIGN(
      const FileSummary summary,
      session.note("archive in", path, session.files().unpack(path, [&](sandbox::TreeFeed& feed) {
        return sandbox::feed_tar(body_of(request), feed, left_out, kQuiet);
      })));
  return reply(request, 200, summary_json(path, summary, left_out));
}

}  // namespace carrel::server
