#include "sandbox/files.h"

#include <algorithm>
#include <array>

#include "sandbox/command.h"
#include "sandbox/file_error.h"

namespace carrel::sandbox {

namespace {

using protocol::FileEntry;
using protocol::FileKind;
using protocol::FileOperation;
using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::FileRequest;
using protocol::FrameType;

constexpr std::size_t kMostNotes = 1000;
constexpr std::uint64_t kMostEntries = 4'000'000;
// What a listing or a search may cost the one who keeps it all.
constexpr std::uint64_t kMostAnswers = 1'000'000;
constexpr std::size_t kMostAnswerBytes = 128U << 20;

Error malformed_answer() {
  return Error{Code::kGone, 0, "the sandbox's file worker sent a malformed answer",
               "the sandbox is not to be trusted any more: remove it"};
}

std::string_view bytes_of(const protocol::Writer& writer) {
  return {reinterpret_cast<const char*>(writer.written().data()), writer.size()};
}

FileRequest request_for(FileOperation operation, std::string_view path) {
  FileRequest request;
  request.operation = operation;
  request.path = path;
  return request;
}

FileInfo info_of(const FileEntry& entry) {
  return {entry.kind,
          entry.mode,
          entry.size,
          entry.modified_ns,
          std::string(entry.path),
          std::string(entry.target)};
}

// Applies the selection; `excluded` keeps what the request points to.
void select(const Selection& selection, FileRequest& request, std::string& excluded) {
  request.flags |= selection.depth == Depth::kAll ? protocol::kFileRecursive : 0U;
  request.flags |= selection.skip_usual ? protocol::kFileSkipUsual : 0U;
  request.count = selection.most;
  for (const std::string& name : selection.excluded) {
    excluded.append(name.c_str(), name.size() + 1);
  }
  request.excluded = {static_cast<std::uint32_t>(selection.excluded.size()), excluded};
}

// Counts what a worker answers, which may be without end.
class AnswerLimit {
 public:
  Status count(std::string_view payload) {
    bytes_ += payload.size();
    if (++answers_ > kMostAnswers || bytes_ > kMostAnswerBytes) {
      return Error{Code::kResource, 0, "there is more than an answer can hold",
                   "ask for a part of it"};
    }
    return {};
  }

 private:
  std::uint64_t answers_ = 0;
  std::size_t bytes_ = 0;
};

// Holds a worker to what a tree is: contents follow their file, and are not longer than announced.
class CheckedTree {
 public:
  explicit CheckedTree(TreeSink& sink) : sink_(sink) {}

  Status take(const FileFrame& frame) {
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
    switch (frame.type) {
      case FrameType::kFileEntry: {
        FileEntry entry;
        if (!protocol::parse_file_entry(frame.payload, entry) || ++entries_ > kMostEntries ||
            entry.kind == FileKind::kOther || entry.kind == FileKind::kHardLink) {
          return malformed_answer();
        }
        left_ = entry.kind == FileKind::kFile ? entry.size : 0;
        return sink_.entry(entry);
      }
      case FrameType::kFileData:
        CARREL_TRY(expect(frame.payload.size()));
        return sink_.contents(frame.payload);
      case FrameType::kFileHole: {
        const std::uint64_t size = reader.u64();
        if (!reader.finished()) {
          return malformed_answer();
        }
        CARREL_TRY(expect(size));
        return sink_.hole(size);
      }
      default:
        return malformed_answer();
    }
  }

 private:
  Status expect(std::uint64_t size) {
    if (size > left_) {
      return malformed_answer();
    }
    left_ -= size;
    return {};
  }

  TreeSink& sink_;
  std::uint64_t left_ = 0;
  std::uint64_t entries_ = 0;
};

}  // namespace

Status check_path(std::string_view path) {
  if (path.empty()) {
    return Error{Code::kInvalid, 0, "the path in the sandbox is empty", {}};
  }
  if (path.find('\0') != std::string_view::npos) {
    return Error{Code::kInvalid, 0, "a NUL byte in the path in the sandbox", {}};
  }
  if (path.size() > protocol::kMaxPath) {
    return Error{Code::kInvalid,
                 0,
                 "the path in the sandbox is " + std::to_string(path.size()) +
                     " bytes long, over the limit of " + std::to_string(protocol::kMaxPath),
                 {}};
  }
  if (protocol::climbs(path)) {
    FileOutcome unsafe;
    unsafe.problem = FileProblem::kUnsafe;
    return file_error(unsafe, path);
  }
  return {};
}

Status TreeFeed::entry(const FileEntry& entry) {
  std::array<unsigned char, 2 * protocol::kMaxPath + 64> buffer;
  protocol::Writer writer(buffer);
  protocol::write_file_entry(writer, entry);
  return stream_.send(FrameType::kFileEntry, bytes_of(writer));
}

Status TreeFeed::hole(std::uint64_t size) {
  std::array<unsigned char, 8> buffer{};
  protocol::Writer writer(buffer);
  writer.u64(size);
  return stream_.send(FrameType::kFileHole, bytes_of(writer));
}

Result<Files> Files::open(GuestStream stream, std::chrono::milliseconds timeout) {
  protocol::Start start;
  start.kind = protocol::StartKind::kFiles;
  start.timeout_ms = static_cast<std::uint64_t>(
      std::clamp<std::int64_t>(timeout.count(), 1, protocol::kMaxTimeoutMs));
  std::array<unsigned char, 128> buffer{};
  protocol::Writer writer(buffer);
  protocol::write_start(writer, start);
  CARREL_TRY(stream.send(1, FrameType::kStart, bytes_of(writer)));
  Files files(stream.release());
  CARREL_ASSIGN(const FileFrame frame, files.stream_->next());
  if (frame.type == FrameType::kRefused) {
    return to_error(frame.payload);
  }
  if (frame.type != FrameType::kFilesReady || !frame.payload.empty()) {
    return malformed_answer();
  }
  return files;
}

Status Files::send_request(const FileRequest& request) {
  CARREL_TRY(check_path(request.path));
  if (!request.other.empty()) {
    CARREL_TRY(check_path(request.other));
  }
  summary_ = {};
  std::string payload(request.path.size() + request.other.size() + request.pattern.size() +
                          request.text.size() + request.excluded.data.size() + 128,
                      '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_file_request(writer, request);
  payload.resize(writer.size());
  FileRequest parsed;
  if (!protocol::parse_file_request(payload, parsed)) {  // the worker would hang up
    return Error{Code::kInvalid,
                 0,
                 "the request for '" + std::string(request.path) +
                     "' has a part that is empty or over its limit",
                 {}};
  }
  return stream_->send(FrameType::kFileRequest, payload);
}

Status Files::take_note(std::string_view payload) {
  FileOutcome outcome;
  if (!protocol::parse_file_outcome(payload, outcome)) {
    return malformed_answer();
  }
  if (summary_.left_outs.size() < kMostNotes) {
    summary_.left_outs.push_back({std::string(outcome.path), file_reason(outcome),
                                  outcome.problem == FileProblem::kNotRegular});
  }
  return {};
}

Result<FileSummary> Files::finish(std::string_view path, const Take& take) {
  for (;;) {
    CARREL_ASSIGN(const FileFrame frame, stream_->next());
    if (frame.type == FrameType::kFileNote) {
      CARREL_TRY(take_note(frame.payload));
      continue;
    }
    if (frame.type != FrameType::kFileDone) {
      CARREL_TRY(take ? take(frame) : Status{malformed_answer()});
      continue;
    }
    FileOutcome outcome;
    if (!protocol::parse_file_outcome(frame.payload, outcome)) {
      return malformed_answer();
    }
    if (outcome.problem != FileProblem::kNone) {
      return file_error(outcome, outcome.path.empty() ? path : outcome.path);
    }
    summary_.entries = outcome.entries;
    summary_.bytes = outcome.bytes;
    summary_.value = outcome.value;
    summary_.left_out = std::max<std::uint64_t>(outcome.left_out, summary_.left_outs.size());
    return std::move(summary_);
  }
}

Result<FileSummary> Files::ask(const FileRequest& request, const Take& take) {
  CARREL_TRY(send_request(request));
  return finish(request.path, take);
}

Status Files::take_early(const FileFrame& frame, std::string_view path) {
  if (frame.type == FrameType::kFileNote) {
    return take_note(frame.payload);
  }
  FileOutcome outcome;
  if (frame.type != FrameType::kFileDone || !protocol::parse_file_outcome(frame.payload, outcome) ||
      outcome.problem == FileProblem::kNone) {
    return malformed_answer();
  }
  return file_error(outcome, outcome.path.empty() ? path : outcome.path);
}

Result<FileSummary> Files::send_contents(const FileRequest& request, const Source& source) {
  CARREL_TRY(send_request(request));
  stream_->set_early(
      [this, &request](const FileFrame& frame) { return take_early(frame, request.path); });
  for (;;) {
    CARREL_ASSIGN(char* place, stream_->place());
    CARREL_ASSIGN(const std::size_t size, source(place, protocol::kFilePiece));
    if (size == 0) {
      break;
    }
    stream_->placed(size);
  }
  CARREL_TRY(stream_->send(FrameType::kFileEnd));
  CARREL_TRY(stream_->flush());
  stream_->set_early({});
  return finish(request.path, {});
}

Result<FileSummary> Files::read(std::string_view path, const ReadRange& range, const Sink& sink) {
  FileRequest request = request_for(FileOperation::kRead, path);
  request.flags = range.unit == ReadRange::Unit::kLines ? protocol::kFileLines : 0U;
  request.from = range.from;
  request.count = range.count;
  return ask(request, [&sink](const FileFrame& frame) -> Status {
    FileEntry entry;
    if (frame.type == FrameType::kFileData) {
      return sink(frame.payload);
    }
    if (frame.type == FrameType::kFileHole) {
      protocol::Reader reader(
          {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
      std::uint64_t size = reader.u64();
      static const std::string zeros(protocol::kFilePiece, '\0');
      for (; reader.finished() && size > 0;) {
        const std::size_t piece = std::min<std::uint64_t>(size, zeros.size());
        CARREL_TRY(sink(std::string_view(zeros).substr(0, piece)));
        size -= piece;
      }
      return reader.finished() ? Status{} : Status{malformed_answer()};
    }
    return frame.type == FrameType::kFileEntry && protocol::parse_file_entry(frame.payload, entry)
               ? Status{}
               : Status{malformed_answer()};
  });
}

Result<FileSummary> Files::write(std::string_view path, const WriteOptions& options,
                                 const Source& source) {
  FileRequest request = request_for(FileOperation::kWrite, path);
  request.flags = options.old == WriteOptions::Old::kRefused  ? protocol::kFileNew
                  : options.old == WriteOptions::Old::kNeeded ? protocol::kFileExisting
                                                              : 0U;
  request.mode = options.mode.value_or(protocol::kDefaultMode);
  request.modified_ns = options.modified_ns;
  return send_contents(request, source);
}

Result<FileSummary> Files::append(std::string_view path, const Source& source) {
  return send_contents(request_for(FileOperation::kAppend, path), source);
}

Result<FileInfo> Files::stat(std::string_view path) {
  std::optional<FileInfo> info;
  CARREL_TRY(ask(request_for(FileOperation::kStat, path), [&info](const FileFrame& frame) {
    FileEntry entry;
    if (frame.type != FrameType::kFileEntry || info.has_value() ||
        !protocol::parse_file_entry(frame.payload, entry)) {
      return Status{malformed_answer()};
    }
    info = info_of(entry);
    return Status{};
  }));
  if (!info.has_value()) {
    return malformed_answer();
  }
  return std::move(*info);
}

Result<FileSummary> Files::list(std::string_view path, const Selection& selection,
                                const std::function<Status(const FileInfo&)>& visit) {
  FileRequest request = request_for(FileOperation::kList, path);
  std::string excluded;
  select(selection, request, excluded);
  request.pattern = selection.pattern;
  AnswerLimit limit;
  return ask(request, [&visit, &limit](const FileFrame& frame) -> Status {
    FileEntry entry;
    CARREL_TRY(limit.count(frame.payload));
    if (frame.type != FrameType::kFileEntry || !protocol::parse_file_entry(frame.payload, entry)) {
      return malformed_answer();
    }
    return visit(info_of(entry));
  });
}

Result<FileSummary> Files::search(std::string_view path, const Search& search,
                                  const Selection& selection,
                                  const std::function<Status(const protocol::FileMatch&)>& visit) {
  FileRequest request = request_for(FileOperation::kSearch, path);
  std::string excluded;
  select(selection, request, excluded);
  request.pattern = search.text;
  request.flags |= search.ignore_case ? protocol::kFileIgnoreCase : 0U;
  AnswerLimit limit;
  return ask(request, [&visit, &limit](const FileFrame& frame) -> Status {
    protocol::FileMatch match;
    CARREL_TRY(limit.count(frame.payload));
    if (frame.type != FrameType::kFileMatch || !protocol::parse_file_match(frame.payload, match)) {
      return malformed_answer();
    }
    return visit(match);
  });
}

Result<FileSummary> Files::replace(std::string_view path, std::string_view old_text,
                                   std::string_view new_text) {
  FileRequest request = request_for(FileOperation::kReplace, path);
  request.pattern = old_text;
  request.text = new_text;
  return ask(request);
}

Result<FileSummary> Files::move(std::string_view path, std::string_view to) {
  FileRequest request = request_for(FileOperation::kMove, path);
  request.other = to;
  return ask(request);
}

Result<FileSummary> Files::copy(std::string_view path, std::string_view to) {
  FileRequest request = request_for(FileOperation::kCopy, path);
  request.other = to;
  return ask(request);
}

Result<FileSummary> Files::remove(std::string_view path, Depth depth) {
  FileRequest request = request_for(FileOperation::kRemove, path);
  request.flags = depth == Depth::kAll ? protocol::kFileRecursive : 0U;
  return ask(request);
}

Result<FileSummary> Files::change_mode(std::string_view path, unsigned mode) {
  FileRequest request = request_for(FileOperation::kChangeMode, path);
  request.mode = mode;
  return ask(request);
}

Result<FileSummary> Files::make_directory(std::string_view path, std::optional<unsigned> mode) {
  FileRequest request = request_for(FileOperation::kMakeDirectory, path);
  request.mode = mode.value_or(protocol::kDefaultMode);
  return ask(request);
}

Status Files::watch(std::string_view path, Depth depth, const Watcher& watcher) {
  constexpr std::chrono::milliseconds kQuiet{250};
  FileRequest request = request_for(FileOperation::kWatch, path);
  request.flags = depth == Depth::kAll ? protocol::kFileRecursive : 0U;
  stream_->set_patience(watcher.quiet ? kQuiet : std::chrono::milliseconds(-1));
  CARREL_TRY(send_request(request));
  bool first = true;
  const auto hear = [&](const FileFrame& frame) -> Status {
    protocol::FileChange change;
    FileEntry entry;
    if (first) {
      first = false;
      return frame.type == FrameType::kFileEntry && protocol::parse_file_entry(frame.payload, entry)
                 ? watcher.begun()
                 : Status{malformed_answer()};
    }
    if (frame.type != FrameType::kFileChange ||
        !protocol::parse_file_change(frame.payload, change)) {
      return malformed_answer();
    }
    return watcher.changed(change);
  };
  Status heard;
  for (;;) {
    auto done = finish(path, [&](const FileFrame& frame) { return heard = hear(frame); });
    const bool only_quiet = !done.ok() && done.error().code == Code::kTimeout && heard.ok();
    if (!only_quiet || !watcher.quiet) {
      return done.ok() ? Status{} : Status{done.error()};
    }
    CARREL_TRY(watcher.quiet());
  }
}

Result<FileSummary> Files::pack(std::string_view path, TreeSink& sink) {
  CheckedTree tree(sink);
  return ask(request_for(FileOperation::kPack, path),
             [&tree](const FileFrame& frame) { return tree.take(frame); });
}

Result<FileSummary> Files::unpack(std::string_view path,
                                  const std::function<Status(TreeFeed&)>& feed) {
  CARREL_TRY(send_request(request_for(FileOperation::kUnpack, path)));
  stream_->set_early([this, path](const FileFrame& frame) { return take_early(frame, path); });
  TreeFeed tree(*stream_);
  CARREL_TRY(feed(tree));
  CARREL_TRY(stream_->send(FrameType::kFileEnd));
  CARREL_TRY(stream_->flush());
  stream_->set_early({});
  return finish(path, {});
}

}  // namespace carrel::sandbox
