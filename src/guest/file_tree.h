#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <string_view>

#include "guest/file_work.h"
#include "guest/runtime.h"

// Walking a tree by descriptors. No link is followed and no other tree is entered by a swap.
namespace carrel::guest {

// A path below the top of a walk, longer and shorter by one name at a time.
class TreePath {
 public:
  // False when it would be too long.
  bool push(std::string_view name) {
    const std::size_t slash = size_ == 0 ? 0 : 1;
    if (size_ + slash + name.size() > protocol::kMaxPath) {
      return false;
    }
    if (slash != 0) {
      data_[size_++] = '/';
    }
    memcpy(data_ + size_, name.data(), name.size());
    size_ += name.size();
    return true;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  void cut(std::size_t size) { size_ = size; }
  [[nodiscard]] std::string_view view() const { return {data_, size_}; }

 private:
  char data_[protocol::kMaxPath + 1];
  std::size_t size_ = 0;
};

struct TreeEntry {
  int directory;
  const char* name;
  unsigned char type;  // DT_REG and so on, never DT_UNKNOWN
};

enum class Way { kInto, kPast, kStop };

inline unsigned char type_of(int directory, const struct dirent& entry) {
  struct stat info{};
  if (entry.d_type != DT_UNKNOWN ||
      fstatat(directory, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return entry.d_type;
  }
  return S_ISDIR(info.st_mode)   ? DT_DIR
         : S_ISREG(info.st_mode) ? DT_REG
         : S_ISLNK(info.st_mode) ? DT_LNK
                                 : DT_FIFO;
}

// Walks what is below the directory `fd`, which it takes over. `visitor.visit(entry, path)` says
// which way to go on; `visitor.leave(fd, path)` comes after all that is below a directory. What
// cannot be entered is noted. False when the walk was stopped, or the host is gone.
template <typename Visitor>
bool walk_tree(FileWork& work, int fd, TreePath& path, std::size_t depth, Visitor& visitor) {
  DIR* stream = fdopendir(fd);
  if (stream == nullptr) {
    close(fd);
    return true;
  }
  const std::size_t above = path.size();
  bool go_on = true;
  while (go_on) {
    errno = 0;
    const struct dirent* found = readdir(stream);
    if (found == nullptr) {
      if (errno != 0) {
        note(work, failed(-errno), path.view());
      }
      break;
    }
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") {
      continue;
    }
    if (depth >= protocol::kDeepestTree || !path.push(name)) {
      note(work, problem(protocol::FileProblem::kTooDeep), path.view());
      break;
    }
    const TreeEntry entry{fd, found->d_name, type_of(fd, *found)};
    const Way way = visitor.visit(entry, path.view());
    go_on = way != Way::kStop && !work.channel.gone();
    if (go_on && way == Way::kInto && entry.type == DT_DIR) {
      int below = open_directory(fd, entry.name);
      if (below < 0) {
        note(work, failed(-errno), path.view());
      } else {
        go_on = walk_tree(work, below, path, depth + 1, visitor);
      }
      visitor.leave(entry, path.view());
    }
    path.cut(above);
  }
  closedir(stream);
  return go_on;
}

// Whether the request leaves out a name, with all that is below it.
bool is_left_out(const FileWork& work, std::string_view name, unsigned char type);

}  // namespace carrel::guest
