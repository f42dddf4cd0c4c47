#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "guest/file_text.h"
#include "guest/file_work.h"

namespace carrel::guest {

namespace {

using protocol::FileEntry;
using protocol::FileKind;
using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::kEverything;

// What is read of a file that does not know its size, such as those of /proc.
constexpr std::uint64_t kMostUnsized = 16U << 20;

std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

// Reads into `place`; the size, 0 at the end, or a negative errno.
ssize_t read_at(int fd, char* place, std::size_t size, std::uint64_t offset) {
  ssize_t n;
  do {
    n = pread(fd, place, size, static_cast<off_t>(offset));
  } while (n < 0 && errno == EINTR);
  return n < 0 ? -errno : n;
}

// Where the hole that begins at `offset` ends; `offset` itself when there is none.
std::uint64_t end_of_hole(int fd, std::uint64_t offset, std::uint64_t end) {
  off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) {
    return errno == ENXIO ? end : offset;
  }
  return least(static_cast<std::uint64_t>(data), end);
}

std::uint64_t end_of_data(int fd, std::uint64_t offset, std::uint64_t end) {
  off_t hole = lseek(fd, static_cast<off_t>(offset), SEEK_HOLE);
  return hole <= static_cast<off_t>(offset) ? end : least(static_cast<std::uint64_t>(hole), end);
}

bool has_holes(int fd) {
  struct stat info{};
  return fstat(fd, &info) == 0 && info.st_blocks * 512 < info.st_size;
}

// Sends lines `from` to `from + count - 1`.
FileOutcome send_lines(FileWork& work, int fd, std::uint64_t size) {
  const std::uint64_t from = work.request.from == 0 ? 1 : work.request.from;
  const std::uint64_t last =
      work.request.count > kEverything - from ? kEverything : from + work.request.count - 1;
  LineRange range(from, work.request.count == 0 ? from - 1 : last);
  FileOutcome outcome;
  for (std::uint64_t at = 0; at < size && !range.over();) {
    char* place = work.channel.place();
    if (place == nullptr) {
      return failed(-EPIPE);
    }
    ssize_t n = read_at(fd, place, least(protocol::kFilePiece, size - at), at);
    if (n < 0) {
      return failed(static_cast<int>(n));
    }
    if (n == 0) {
      break;
    }
    at += static_cast<std::uint64_t>(n);
    std::string_view wanted = range.take({place, static_cast<std::size_t>(n)});
    if (!wanted.empty()) {
      __builtin_memmove(place, wanted.data(), wanted.size());
      work.channel.placed(wanted.size());
      outcome.bytes += wanted.size();
    }
    if (work.channel.gone()) {
      return failed(-EPIPE);
    }
  }
  if (from > 1 && range.lines() < from) {
    return problem(FileProblem::kRange, range.lines());
  }
  return outcome;
}

}  // namespace

FileEntry entry_of(const struct stat& info, std::string_view path) {
  FileEntry entry;
  entry.kind = S_ISREG(info.st_mode)   ? FileKind::kFile
               : S_ISDIR(info.st_mode) ? FileKind::kDirectory
               : S_ISLNK(info.st_mode) ? FileKind::kLink
                                       : FileKind::kOther;
  entry.mode = static_cast<std::uint32_t>(info.st_mode & 07777);
  entry.size = S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
  if (info.st_mtim.tv_sec > 0) {
    entry.modified_ns = static_cast<std::uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000 +
                        static_cast<std::uint64_t>(info.st_mtim.tv_nsec);
  }
  entry.path = path;
  return entry;
}

bool send_contents(FileChannel& channel, int fd, std::uint64_t offset, std::uint64_t size,
                   Contents& contents) {
  const std::uint64_t end = offset + size;
  std::uint64_t data_end = end;
  const bool sparse = size > protocol::kFilePiece && has_holes(fd);
  if (sparse) {
    data_end = offset;
  }
  while (offset < end) {
    if (sparse && offset == data_end) {
      const std::uint64_t next = end_of_hole(fd, offset, end);
      if (next > offset && !channel.send_number(protocol::FrameType::kFileHole, next - offset)) {
        return false;
      }
      contents.sent += next - offset;
      offset = next;
      data_end = end_of_data(fd, offset, end);
      continue;
    }
    char* place = channel.place();
    if (place == nullptr) {
      return false;
    }
    ssize_t n = read_at(fd, place, least(protocol::kFilePiece, data_end - offset), offset);
    if (n <= 0) {
      contents.error = static_cast<int>(-n);
      return true;
    }
    channel.placed(static_cast<std::size_t>(n));
    contents.sent += static_cast<std::uint64_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
  return true;
}

FileOutcome read_file(FileWork& work) {
  struct stat info{};
  int fd = open_regular(work.path.c_str(), info);
  if (fd < 0) {
    return failed(fd);
  }
  const bool unsized_file = info.st_size == 0;
  const std::uint64_t size = unsized_file ? kMostUnsized : static_cast<std::uint64_t>(info.st_size);
  FileOutcome outcome;
  if (!work.channel.send_entry(entry_of(info, {}))) {
    outcome = failed(-EPIPE);
  } else if ((work.request.flags & protocol::kFileLines) != 0) {
    outcome = send_lines(work, fd, size);
  } else if (work.request.from > (unsized_file ? 0 : size)) {
    outcome = problem(FileProblem::kRange, unsized_file ? 0 : size);
  } else {
    Contents contents;
    const std::uint64_t wanted = least(work.request.count, size - work.request.from);
    if (!send_contents(work.channel, fd, work.request.from, wanted, contents)) {
      contents.error = EPIPE;
    }
    outcome = contents.error != 0 ? failed(-contents.error) : FileOutcome();
    outcome.bytes = contents.sent;
    if (contents.error == 0 && contents.sent < wanted && !unsized_file) {
      outcome.problem = FileProblem::kChanged;
    }
  }
  close(fd);
  return outcome;
}

FileOutcome stat_file(FileWork& work) {
  int fd = open_in_root(work.path.c_str(), O_PATH | O_NOFOLLOW);
  struct stat info{};
  if (fd < 0 || fstat(fd, &info) != 0) {
    return failed(fd < 0 ? fd : -errno);
  }
  FileEntry entry = entry_of(info, {});
  char target[protocol::kMaxPath];
  if (entry.kind == FileKind::kLink) {
    ssize_t n = readlinkat(fd, "", target, sizeof target);
    entry.target =
        n <= 0 ? std::string_view("?") : std::string_view(target, static_cast<std::size_t>(n));
  }
  close(fd);
  work.channel.send_entry(entry);
  return {};
}

}  // namespace carrel::guest
