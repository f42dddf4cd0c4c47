#include <stdio.h>
#include <sys/sendfile.h>

#include "guest/file_tree.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::FileOutcome;
using protocol::FileProblem;

constexpr std::size_t kDeepestRemoved = 512;

// Copies an open file; 0 or a negative errno.
int copy_contents(FileChannel& channel, int from, int to) {
  constexpr std::size_t kPiece = 1U << 20;
  for (;;) {
    ssize_t n = sendfile(to, from, nullptr, kPiece);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0 || channel.gone()) {
      return n < 0 ? -errno : 0;
    }
  }
}

// Copies below one directory. Links stay links; what is in the way of a file is replaced.
class Copier {
 public:
  explicit Copier(FileWork& work) : work_(work) {}

  // 0 or a negative errno for the entry itself; what fails below it is noted.
  int copy(int from, const char* name, int to, const char* new_name, std::size_t depth) {
    struct stat info{};
    if (fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return -errno;
    }
    ++outcome_.entries;
    if (S_ISDIR(info.st_mode)) {
      return copy_directory(from, name, to, new_name, depth, info);
    }
    if (S_ISREG(info.st_mode)) {
      return copy_file(from, name, to, new_name);
    }
    return S_ISLNK(info.st_mode) ? copy_link(from, name, to, new_name) : -ENXIO;
  }

  [[nodiscard]] FileOutcome& outcome() { return outcome_; }

 private:
  int copy_file(int from, const char* name, int to, const char* new_name) {
    struct stat info{};
    int source = open_regular_at(from, name, info);
    if (source < 0) {
      return source;
    }
    NewFile file;
    int result = file.begin(to, new_name, info.st_mode & 01777);
    if (result == 0) {
      result = copy_contents(work_.channel, source, file.descriptor());
    }
    close(source);
    if (result == 0) {
      set_modified(file.descriptor(), entry_of(info, {}).modified_ns);
      outcome_.bytes += static_cast<std::uint64_t>(info.st_size);
      result = file.commit(NewFile::Over::kAnything);
    }
    return result;
  }

  static int copy_link(int from, const char* name, int to, const char* new_name) {
    char target[protocol::kMaxPath + 1] = {};
    if (readlinkat(from, name, target, sizeof target - 1) < 0) {
      return -errno;
    }
    if (symlinkat(target, to, new_name) != 0 &&
        (errno != EEXIST || unlinkat(to, new_name, 0) != 0 ||
         symlinkat(target, to, new_name) != 0)) {
      return -errno;
    }
    return 0;
  }

  int copy_directory(int from, const char* name, int to, const char* new_name, std::size_t depth,
                     const struct stat& info) {
    if (depth >= protocol::kDeepestTree) {
      return -ELOOP;
    }
    if (top_set_ && info.st_dev == top_.st_dev && info.st_ino == top_.st_ino) {
      return 0;  // the copy itself, which lies in what is copied
    }
    if (mkdirat(to, new_name, (info.st_mode & 01777) | 0700) != 0 && errno != EEXIST) {
      return -errno;
    }
    int source = open_directory(from, name);
    int target = source < 0 ? -1 : open_directory(to, new_name);
    DIR* stream = target < 0 ? nullptr : fdopendir(source);
    if (stream == nullptr) {
      int reason = -errno;
      for (int fd : {source, target}) {
        if (fd >= 0) {
          close(fd);
        }
      }
      return reason;
    }
    if (!top_set_) {
      top_set_ = fstat(target, &top_) == 0;
    }
    while (const struct dirent* entry = readdir(stream)) {
      const std::string_view child = entry->d_name;
      if (child == "." || child == ".." || work_.channel.gone()) {
        continue;
      }
      int result = copy(source, entry->d_name, target, entry->d_name, depth + 1);
      if (result < 0) {
        note(work_, failed(result), child);
      }
    }
    fchmod(target, info.st_mode & 01777);
    closedir(stream);
    close(target);
    return 0;
  }

  FileWork& work_;
  FileOutcome outcome_;
  struct stat top_{};
  bool top_set_ = false;
};

// Removes a name with all that is below it; 0 or a negative errno.
int remove_tree(FileChannel& channel, int parent, const char* name, std::size_t depth) {
  if (unlinkat(parent, name, 0) == 0) {
    return 0;
  }
  if (errno != EISDIR && errno != EPERM) {
    return -errno;
  }
  if (depth >= kDeepestRemoved) {
    return -ELOOP;
  }
  int fd = open_directory(parent, name);
  DIR* stream = fd < 0 ? nullptr : fdopendir(fd);
  if (stream == nullptr) {
    return -errno;
  }
  int result = 0;
  while (const struct dirent* entry = readdir(stream)) {
    const std::string_view child = entry->d_name;
    if (child == "." || child == "..") {
      continue;
    }
    result = channel.gone() ? -EPIPE : remove_tree(channel, fd, entry->d_name, depth + 1);
    if (result < 0 && result != -ENOENT) {
      break;
    }
    result = 0;
  }
  closedir(stream);
  if (result == 0 && unlinkat(parent, name, AT_REMOVEDIR) != 0) {
    result = -errno;
  }
  return result;
}

// Where something named `name` goes that is told to go to `other`: into it, if that is a directory.
int find_destination(const FileWork& work, std::string_view name, Place& place) {
  struct stat info{};
  int there = open_in_root(work.other.c_str(), O_PATH);
  const bool into = there >= 0 && fstat(there, &info) == 0 && S_ISDIR(info.st_mode);
  if (there >= 0) {
    close(there);
  }
  if (!into) {
    return find_place(work.other, Parents::kMake, place);
  }
  Path inside;
  inside.add(work.other.view()).add("/").add(name);
  return find_place(inside, Parents::kLeave, place);
}

struct Ends {
  Place from;
  Place to;
};

int find_ends(const FileWork& work, Ends& ends) {
  int result = find_place(work.path, Parents::kLeave, ends.from);
  struct stat info{};
  if (result == 0 &&
      fstatat(ends.from.parent, ends.from.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    result = -errno;
  }
  return result < 0 ? result : find_destination(work, ends.from.name.view(), ends.to);
}

}  // namespace

FileOutcome copy_files(FileWork& work) {
  Ends ends;
  int result = find_ends(work, ends);
  Copier copier(work);
  if (result == 0) {
    result = copier.copy(ends.from.parent, ends.from.name.c_str(), ends.to.parent,
                         ends.to.name.c_str(), 0);
  }
  return result < 0 ? failed(result) : copier.outcome();
}

FileOutcome move_files(FileWork& work) {
  Ends ends;
  int result = find_ends(work, ends);
  if (result < 0) {
    return failed(result);
  }
  const char* from = ends.from.name.c_str();
  const char* to = ends.to.name.c_str();
  if (renameat(ends.from.parent, from, ends.to.parent, to) == 0) {
    FileOutcome outcome;
    outcome.entries = 1;
    return outcome;
  }
  if (errno != EXDEV) {
    return failed(-errno);
  }
  // To another file system: what was copied whole is removed here.
  Copier copier(work);
  result = copier.copy(ends.from.parent, from, ends.to.parent, to, 0);
  if (result == 0 && work.notes == 0) {
    result = remove_tree(work.channel, ends.from.parent, from, 0);
  }
  return result < 0 ? failed(result) : copier.outcome();
}

FileOutcome remove_files(FileWork& work) {
  Place place;
  int result = find_place(work.path, Parents::kLeave, place);
  if (result == 0 && (work.request.flags & protocol::kFileRecursive) != 0) {
    result = remove_tree(work.channel, place.parent, place.name.c_str(), 0);
  } else if (result == 0) {
    result = unlinkat(place.parent, place.name.c_str(), 0) == 0 ? 0 : -errno;
    if (result == -EISDIR) {
      result = unlinkat(place.parent, place.name.c_str(), AT_REMOVEDIR) == 0 ? 0 : -errno;
    }
  }
  return result < 0 ? failed(result) : FileOutcome();
}

}  // namespace carrel::guest
