#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/file_text.h"
#include "guest/file_work.h"

namespace carrel::guest {

namespace {

using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::FrameType;

constexpr unsigned kNewFileMode = 0644;
constexpr unsigned kModeBits = 01777;  // no set-id
constexpr std::uint64_t kMostReplaced = 16U << 20;
constexpr long kChangeModeCall = 452;  // fchmodat2, Linux 6.6

// Writes what the host sends until it says that this was all. 0 or a negative errno.
int receive_contents(FileChannel& channel, int fd, std::uint64_t& size) {
  protocol::FrameHeader header;
  std::string_view payload;
  bool hole_at_end = false;
  while (channel.next(header, payload)) {
    if (header.type == FrameType::kFileEnd && payload.empty()) {
      return hole_at_end && ftruncate(fd, static_cast<off_t>(size)) != 0 ? -errno : 0;
    }
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
    if (header.type == FrameType::kFileHole) {
      const std::uint64_t hole = reader.u64();
      if (!reader.finished() || hole > static_cast<std::uint64_t>(INT64_MAX) - size ||
          lseek(fd, static_cast<off_t>(size + hole), SEEK_SET) < 0) {
        return -EBADMSG;
      }
      size += hole;
      hole_at_end = true;
    } else if (header.type != FrameType::kFileData) {
      return -EBADMSG;
    } else if (!write_whole(fd, payload)) {
      return -errno;
    } else {
      size += payload.size();
      hole_at_end = hole_at_end && payload.empty();
    }
  }
  return -EPIPE;
}

// What is there already; 0 or a negative errno. A directory and a special file are errors.
int look_at_old(const Place& place, struct stat& info) {
  if (fstatat(place.parent, place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return -errno;
  }
  return S_ISDIR(info.st_mode) ? -EISDIR : S_ISREG(info.st_mode) ? 0 : -ENXIO;
}

bool names_directory(const FileWork& work) { return work.request.path.back() == '/'; }

// Finds where a file is to be written, and its mode. 0 or a negative errno.
int prepare(FileWork& work, Place& place, unsigned& mode) {
  const std::uint32_t flags = work.request.flags;
  const Parents parents = (flags & protocol::kFileExisting) != 0 ? Parents::kLeave : Parents::kMake;
  const bool fresh = (flags & protocol::kFileNew) != 0;
  if (names_directory(work)) {
    return -EISDIR;
  }
  int result =
      fresh ? find_place(work.path, parents, place) : find_target(work.path, parents, place);
  if (result < 0) {
    return result == -EBUSY ? -EISDIR : result;
  }
  struct stat info{};
  result = look_at_old(place, info);
  if (fresh && result != -ENOENT) {
    return -EEXIST;
  }
  if (result < 0 && (result != -ENOENT || (flags & protocol::kFileExisting) != 0)) {
    return result;
  }
  mode = result == 0 ? info.st_mode & kModeBits : kNewFileMode;
  if (work.request.mode != protocol::kDefaultMode) {
    mode = work.request.mode & kModeBits;
  }
  return 0;
}

// The whole of a file that is to be changed. `data` is mapped; a negative errno, or -EFBIG.
int load(int fd, std::uint64_t size, char*& data) {
  if (size > kMostReplaced) {
    return -EFBIG;
  }
  void* memory =
      mmap(nullptr, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return -errno;
  }
  data = static_cast<char*>(memory);
  std::uint64_t have = 0;
  while (have < size) {
    ssize_t n = read(fd, data + have, size - have);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return n < 0 ? -errno : -ESTALE;
    }
    have += static_cast<std::uint64_t>(n);
  }
  return 0;
}

FileOutcome ambiguous(const Occurrences& found) {
  static Text<protocol::kMaxReason> lines;
  lines = {};
  for (std::size_t i = 0; i < found.count && i < Occurrences::kNamed; ++i) {
    lines.add(i == 0 ? "" : ", ").add_number(found.lines[i]);
  }
  if (found.count > Occurrences::kNamed) {
    lines.add(", ...");
  }
  FileOutcome outcome = problem(FileProblem::kMatches, found.count);
  outcome.detail = lines.view();
  return outcome;
}

FileOutcome replace_contents(const FileWork& work, const Place& place, unsigned mode,
                             std::string_view contents) {
  const Occurrences found = find_occurrences(contents, work.request.pattern);
  if (found.count != 1) {
    return found.count == 0 ? problem(FileProblem::kNoMatch) : ambiguous(found);
  }
  NewFile file;
  int result = file.begin(place.parent, place.name.c_str(), mode);
  if (result == 0 && (!write_whole(file.descriptor(), contents.substr(0, found.first)) ||
                      !write_whole(file.descriptor(), work.request.text) ||
                      !write_whole(file.descriptor(),
                                   part(contents, found.first + work.request.pattern.size())))) {
    result = -errno;
  }
  result = result < 0 ? result : file.commit(NewFile::Over::kAnything);
  if (result < 0) {
    return failed(result);
  }
  FileOutcome outcome;
  outcome.bytes = contents.size() - work.request.pattern.size() + work.request.text.size();
  outcome.value = found.lines[0];
  return outcome;
}

}  // namespace

FileOutcome write_new_file(FileWork& work) {
  Place place;
  unsigned mode = 0;
  int result = prepare(work, place, mode);
  NewFile file;
  if (result == 0) {
    result = file.begin(place.parent, place.name.c_str(), mode);
  }
  FileOutcome outcome;
  if (result == 0) {
    result = receive_contents(work.channel, file.descriptor(), outcome.bytes);
  }
  if (result == 0) {
    set_modified(file.descriptor(), work.request.modified_ns);
    result = file.commit((work.request.flags & protocol::kFileNew) != 0 ? NewFile::Over::kNothing
                                                                        : NewFile::Over::kAnything);
  }
  return result < 0 ? failed(result) : outcome;
}

FileOutcome append_to_file(FileWork& work) {
  Place place;
  int result = names_directory(work) ? -EISDIR : find_target(work.path, Parents::kMake, place);
  struct stat info{};
  if (result == 0) {
    result = look_at_old(place, info);
  }
  if (result < 0 && result != -ENOENT) {
    return failed(result == -EBUSY ? -EISDIR : result);
  }
  int fd = openat(
      place.parent, place.name.c_str(),
      O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
      work.request.mode == protocol::kDefaultMode ? kNewFileMode : work.request.mode & kModeBits);
  if (fd < 0) {
    return failed(-errno);
  }
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {  // it was swapped
    close(fd);
    return failed(-ENXIO);
  }
  FileOutcome outcome;
  result = receive_contents(work.channel, fd, outcome.bytes);
  struct stat after{};
  if (result < 0 && fstat(fd, &after) == 0 &&
      after.st_size <= info.st_size + static_cast<off_t>(outcome.bytes + protocol::kFilePiece)) {
    // What was added of it goes again, unless somebody else has added something, too.
    (void)!ftruncate(fd, info.st_size);
  }
  close(fd);
  return result < 0 ? failed(result) : outcome;
}

FileOutcome replace_in_file(FileWork& work) {
  Place place;
  int result = find_target(work.path, Parents::kLeave, place);
  if (result < 0) {
    return failed(result == -EBUSY ? -EISDIR : result);
  }
  struct stat info{};
  int fd = open_regular_at(place.parent, place.name.c_str(), info);
  if (fd < 0) {
    return failed(fd);
  }
  char* data = nullptr;
  const std::uint64_t size = static_cast<std::uint64_t>(info.st_size);
  result = load(fd, size, data);
  close(fd);
  FileOutcome outcome = result == -EFBIG ? problem(FileProblem::kTooLarge, kMostReplaced)
                        : result < 0     ? failed(result)
                                         : replace_contents(work, place, info.st_mode & kModeBits,
                                                            {data, static_cast<std::size_t>(size)});
  if (data != nullptr) {
    munmap(data, size + 1);
  }
  return outcome;
}

FileOutcome change_mode(FileWork& work) {
  const unsigned mode = work.request.mode;
  if (mode > kModeBits) {
    return failed(-EPERM);
  }
  int fd = open_in_root(work.path.c_str(), O_PATH | O_NOFOLLOW);
  struct stat info{};
  if (fd < 0 || fstat(fd, &info) != 0) {
    return failed(fd < 0 ? fd : -errno);
  }
  int result = S_ISLNK(info.st_mode) ? -ELOOP : 0;
  if (result == 0 && syscall(kChangeModeCall, fd, "", mode, AT_EMPTY_PATH) != 0) {
    result = -errno;
  }
  close(fd);
  if (result == -ENOSYS || result == -EPERM) {
    Place place;
    result = find_place(work.path, Parents::kLeave, place);
    int file = result < 0 ? result
                          : openat(place.parent, place.name.c_str(),
                                   O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    result = file < 0 || fchmod(file, mode) != 0 ? -errno : 0;
    if (file >= 0) {
      close(file);
    }
  }
  return result < 0 ? failed(result) : FileOutcome();
}

FileOutcome make_directory(FileWork& work) {
  int fd = make_directories(work.path, work.request.mode == protocol::kDefaultMode
                                           ? 0755
                                           : work.request.mode & kModeBits);
  if (fd < 0) {
    return failed(fd);
  }
  close(fd);
  return {};
}

}  // namespace carrel::guest
