#include "guest/file_worker.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "guest/file_work.h"

namespace carrel::guest {

namespace {

using protocol::FileOperation;
using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::FrameType;

bool takes_input(FileOperation operation) {
  return operation == FileOperation::kWrite || operation == FileOperation::kAppend ||
         operation == FileOperation::kUnpack;
}

FileOutcome perform(FileWork& work) {
  switch (work.request.operation) {
    case FileOperation::kRead:
      return read_file(work);
    case FileOperation::kWrite:
      return write_new_file(work);
    case FileOperation::kAppend:
      return append_to_file(work);
    case FileOperation::kStat:
      return stat_file(work);
    case FileOperation::kList:
      return list_files(work);
    case FileOperation::kSearch:
      return search_files(work);
    case FileOperation::kMove:
      return move_files(work);
    case FileOperation::kCopy:
      return copy_files(work);
    case FileOperation::kRemove:
      return remove_files(work);
    case FileOperation::kChangeMode:
      return change_mode(work);
    case FileOperation::kMakeDirectory:
      return make_directory(work);
    case FileOperation::kWatch:
      return watch_files(work);
    case FileOperation::kPack:
      return pack_tree(work);
    case FileOperation::kUnpack:
      return unpack_tree(work);
    case FileOperation::kReplace:
      return replace_in_file(work);
  }
  return failed(-EBADMSG);
}

FileOutcome prepare_and_perform(FileWork& work) {
  int result = absolute_path(work.workdir, work.request.path, work.path);
  std::string_view about = work.request.path;
  if (result == 0 && !work.request.other.empty()) {
    result = absolute_path(work.workdir, work.request.other, work.other);
    about = work.request.other;
  }
  if (result == 0) {
    return perform(work);
  }
  FileOutcome outcome = failed(result, about);
  if (result == -EXDEV) {
    outcome.problem = FileProblem::kUnsafe;
  }
  return outcome;
}

}  // namespace

FileOutcome failed(int negative_errno, std::string_view path) {
  FileOutcome outcome;
  outcome.problem = negative_errno == -ENXIO   ? FileProblem::kNotRegular
                    : negative_errno == -EXDEV ? FileProblem::kOutside
                                               : FileProblem::kSystem;
  outcome.error_number = static_cast<std::uint32_t>(-negative_errno);
  outcome.path = path;
  return outcome;
}

void note(FileWork& work, const FileOutcome& outcome, std::string_view path) {
  constexpr std::uint64_t kTold = 1000;
  if (++work.notes <= kTold) {
    FileOutcome told = outcome;
    told.path = path;
    work.channel.send_outcome(FrameType::kFileNote, told);
  }
}

[[noreturn]] void serve_files(std::string_view workdir) {
  static FileChannel channel;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error, not an end
  umask(0);
  if (!channel.open(0, 1) || !channel.send(FrameType::kFilesReady)) {
    _exit(1);
  }
  protocol::FrameHeader header;
  std::string_view payload;
  while (channel.next(header, payload)) {
    protocol::FileRequest request;
    if (header.type != FrameType::kFileRequest || !protocol::parse_file_request(payload, request)) {
      _exit(1);
    }
    // The request's views lie in the channel's buffer, which the input of the operation overwrites.
    Path path;
    path.add(request.path);
    request.path = path.view();
    FileWork work{channel, request, workdir, {}, {}};
    FileOutcome outcome = prepare_and_perform(work);
    outcome.left_out = work.notes;
    if (outcome.problem != FileProblem::kNone && outcome.path.empty()) {
      outcome.path = request.path;
    }
    if (!channel.send_outcome(FrameType::kFileDone, outcome)) {
      _exit(1);
    }
    // The input of an operation that has failed is of no use, and no other follows.
    if (takes_input(request.operation) && outcome.problem != FileProblem::kNone) {
      while (channel.next(header, payload)) {
      }
      _exit(0);
    }
  }
  _exit(0);
}

}  // namespace carrel::guest
