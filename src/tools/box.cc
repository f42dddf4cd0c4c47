#include "tools/box.h"

#include <cstring>
#include <utility>

#include "base/code_name.h"
#include "manager/box_command.h"
#include "manager/life.h"
#include "sandbox/capture.h"
#include "storage/events.h"

namespace carrel::tools {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using manager::Follower;

constexpr std::chrono::milliseconds kFileTimeout = 60s;
constexpr int kAnswerMs = 10'000;
constexpr int kTickMs = 100;
constexpr std::size_t kMostListed = 10'000;
constexpr std::string_view kWorkspace = "/workspace";

std::string inside(const std::string& path) {
  return path == "." ? std::string(kWorkspace) : std::string(kWorkspace) + "/" + path;
}

sandbox::Files::Source source_of(std::string_view text) {
  return [rest = text](char* place, std::size_t size) mutable -> Result<std::size_t> {
    const std::size_t piece = std::min(size, rest.size());
    std::memcpy(place, rest.data(), piece);
    rest.remove_prefix(piece);
    return piece;
  };
}

}  // namespace

Result<std::unique_ptr<Box>> Box::open(storage::Home home, const std::string& id) {
  CARREL_ASSIGN(storage::BoxRecord record, storage::read_record(home, id));
  CARREL_ASSIGN(storage::BoxUse use, manager::begin_use(home, record));
  return std::unique_ptr<Box>(new Box(std::move(home), std::move(record), std::move(use)));
}

std::string Box::where() const {
  return "in a sandbox, in which nothing of the host can be reached. Its /workspace is kept; what "
         "else there is goes with it";
}

namespace {

// Runs a command with the given means, and puts its output into its result.
template <typename Serve>
Result<sandbox::ExecResult> captured(const Cancel& cancel, const Serve& serve) {
  if (cancel.asked()) {
    return cancelled();
  }
  sandbox::Capture output;
  sandbox::Capture error;
  sandbox::CommandIo io;
  io.output = [&](protocol::Stream which, std::string_view data) -> Status {
    (which == protocol::Stream::kStdout ? output : error).add(data);
    return {};
  };
  io.wake = cancel.fd();
  bool told = false;
  io.on_wake = [&] {
    sandbox::CommandIo::Wish wish;
    wish.kill = !std::exchange(told, true);
    return wish;
  };
  Result<sandbox::ExecResult> result = serve(io);
  if (cancel.asked()) {
    return cancelled();
  }
  if (result.ok()) {
    result->standard_output = output.text();
    result->standard_error = error.text();
    result->truncated = result->truncated || output.cut() || error.cut();
  }
  return result;
}

}  // namespace

Result<sandbox::ExecResult> Box::run(const sandbox::CommandRequest& request, const Cancel& cancel) {
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home_, record_));
  return captured(cancel, [&](const sandbox::CommandIo& io) {
    return manager::run_in_box({home_, record_}, stream, request, io);
  });
}

Result<sandbox::ExecResult> Box::run_unlogged(const sandbox::CommandRequest& request,
                                              const Cancel& cancel) {
  CARREL_ASSIGN(const std::string payload, sandbox::encode_start(request, sandbox::Input::kNone));
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home_, record_));
  return captured(cancel, [&](const sandbox::CommandIo& io) {
    return sandbox::serve_command(stream, protocol::FrameType::kStart, payload, request.timeout,
                                  io);
  });
}

Result<std::uint64_t> Box::start(const sandbox::CommandRequest& request) {
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home_, record_));
  manager::note_command(home_, record_.id, request);
  return manager::start_command(stream, request, sandbox::Input::kNone);
}

Result<Box::Progress> Box::look(std::uint64_t command, const std::array<std::uint64_t, 2>& from,
                                std::chrono::milliseconds patience, const Cancel& cancel) {
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home_, record_));
  CARREL_ASSIGN(const manager::KnownCommand known, manager::look_at_command(stream, command));
  CARREL_ASSIGN(Follower follower, Follower::begin(stream, command, from));
  Progress progress;
  progress.next = from;
  sandbox::Capture output;
  const Clock::time_point deadline = Clock::now() + patience;
  for (;;) {
    // What there was when this began is read in any case.
    const bool behind = progress.next[0] < known.end[0] || progress.next[1] < known.end[1];
    if (!behind && known.running && Clock::now() >= deadline) {
      break;
    }
    if (cancel.asked()) {
      return cancelled();
    }
    auto news = follower.next(behind || !known.running ? kAnswerMs : kTickMs);
    if (!news.ok()) {
      if (news.error().code != Code::kTimeout || behind || !known.running) {
        return news.error();
      }
      continue;
    }
    if (news->kind == Follower::News::Kind::kEnd) {
      progress.running = false;
      progress.end = std::move(news->result);
      break;
    }
    if (news->kind == Follower::News::Kind::kOutput) {
      progress.next[static_cast<std::size_t>(news->stream) - 1] = news->offset + news->data.size();
      output.add(news->data);
    }
  }
  progress.output = output.text();
  return progress;
}

Status Box::kill(std::uint64_t command) {
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home_, record_));
  CARREL_ASSIGN(Follower follower,
                Follower::begin(stream, command, {manager::kAtItsEnd, manager::kAtItsEnd}));
  CARREL_TRY(follower.kill());
  for (;;) {
    CARREL_ASSIGN(const Follower::News news, follower.next(kAnswerMs));
    if (news.kind == Follower::News::Kind::kEnd) {
      return {};
    }
  }
}

Result<sandbox::Files> Box::files() {
  CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home_, record_));
  CARREL_ASSIGN(sandbox::Files files, sandbox::Files::open(std::move(stream), kFileTimeout));
  files.set_patience(kFileTimeout);
  return files;
}

template <typename Value>
void Box::note(std::string_view action, const std::string& path, const Result<Value>& result) {
  storage::add_event(home_, storage::file_event(record_.id, action, path,
                                                result.ok() ? "" : code_name(result.error().code)));
}

Result<FileStore::Text> Box::read(const std::string& path, const sandbox::ReadRange& range,
                                  std::size_t limit) {
  CARREL_ASSIGN(sandbox::Files worker, files());
  Text text;
  auto done = worker.read(inside(path), range, [&](std::string_view piece) -> Status {
    const std::size_t room = limit - text.text.size();
    text.text += piece.substr(0, room);
    if (piece.size() > room) {
      text.cut = true;
      return Error{Code::kResource, 0, "enough", {}};
    }
    return {};
  });
  if (text.cut) {
    return text;
  }
  note("read", path, done);
  if (!done.ok()) {
    return done.error();
  }
  return text;
}

Status Box::write(const std::string& path, std::string_view contents,
                  const sandbox::WriteOptions& options) {
  CARREL_ASSIGN(sandbox::Files worker, files());
  auto done = worker.write(inside(path), options, source_of(contents));
  note("write", path, done);
  return done.ok() ? Status() : Status(done.error());
}

Result<std::uint64_t> Box::replace(const std::string& path, std::string_view old_text,
                                   std::string_view new_text) {
  CARREL_ASSIGN(sandbox::Files worker, files());
  auto done = worker.replace(inside(path), old_text, new_text);
  note("str-replace", path, done);
  if (!done.ok()) {
    return done.error();
  }
  return done->value;
}

Status Box::remove(const std::string& path) {
  CARREL_ASSIGN(sandbox::Files worker, files());
  auto done = worker.remove(inside(path), sandbox::Depth::kOne);
  note("rm", path, done);
  return done.ok() ? Status() : Status(done.error());
}

Result<std::vector<sandbox::FileInfo>> Box::list(const std::string& path, std::size_t most) {
  CARREL_ASSIGN(sandbox::Files worker, files());
  std::vector<sandbox::FileInfo> found;
  sandbox::Selection selection;
  selection.depth = sandbox::Depth::kAll;
  selection.skip_usual = true;
  selection.excluded = {".exec"};
  selection.most = std::min(most, kMostListed);
  auto done = worker.list(inside(path), selection, [&](const sandbox::FileInfo& info) -> Status {
    found.push_back(info);
    return {};
  });
  const bool more = !done.ok() && done.error().code == Code::kResource && !found.empty();
  if (!done.ok() && !more) {
    return done.error();
  }
  return found;
}

std::string Box::preview() const {
  return "http://localhost:8080/, when a server inside listens on port 8080 and `carrel port " +
         record_.id.substr(0, 8) + " 8080 --host-port 8080` runs";
}

}  // namespace carrel::tools
