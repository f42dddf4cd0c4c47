#include "guest/file_tree.h"

namespace carrel::guest {

namespace {

using protocol::FileEntry;
using protocol::FileKind;
using protocol::FileOutcome;
using protocol::FileProblem;

constexpr std::uint32_t kModeBits = 01777;  // no set-id leaves the sandbox

class Packer {
 public:
  explicit Packer(FileWork& work) : work_(work) {}

  Way visit(const TreeEntry& entry, std::string_view path) {
    switch (entry.type) {
      case DT_DIR:
        return directory(entry, FileKind::kDirectory, path) ? Way::kInto : Way::kPast;
      case DT_REG:
        return file(entry, path) ? Way::kPast : Way::kStop;
      case DT_LNK:
        link(entry, path);
        return Way::kPast;
      default:
        note(work_, problem(FileProblem::kNotRegular), path);
        return Way::kPast;
    }
  }

  void leave(const TreeEntry& entry, std::string_view path) {
    directory(entry, FileKind::kDirectoryEnd, path);
  }

  // False when the host is gone. Takes the descriptor over.
  bool contents(int fd, const struct stat& info, std::string_view path) {
    FileEntry entry = entry_of(info, path);
    entry.mode &= kModeBits;
    Contents sent;
    const bool there =
        work_.channel.send_entry(entry) && send_contents(work_.channel, fd, 0, entry.size, sent);
    close(fd);
    if (there && sent.error != 0) {
      note(work_, failed(-sent.error), path);
    } else if (there && sent.sent < entry.size) {
      note(work_, problem(FileProblem::kChanged), path);
    }
    ++outcome_.entries;
    outcome_.bytes += sent.sent;
    return there;
  }

  bool directory(const struct stat& info, FileKind kind, std::string_view path) {
    FileEntry entry = entry_of(info, path);
    entry.kind = kind;
    entry.mode &= kModeBits;
    outcome_.entries += kind == FileKind::kDirectory ? 1 : 0;
    return work_.channel.send_entry(entry);
  }

  [[nodiscard]] const FileOutcome& outcome() const { return outcome_; }

 private:
  bool directory(const TreeEntry& entry, FileKind kind, std::string_view path) {
    struct stat info{};
    if (fstatat(entry.directory, entry.name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(info.st_mode)) {
      return false;
    }
    return directory(info, kind, path);
  }

  bool file(const TreeEntry& entry, std::string_view path) {
    struct stat info{};
    int fd = open_regular_at(entry.directory, entry.name, info);
    if (fd < 0) {
      note(work_, failed(fd), path);
      return true;
    }
    return contents(fd, info, path);
  }

  void link(const TreeEntry& entry, std::string_view path) {
    struct stat info{};
    char target[protocol::kMaxPath];
    ssize_t n = readlinkat(entry.directory, entry.name, target, sizeof target);
    if (n <= 0 || fstatat(entry.directory, entry.name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      note(work_, failed(n == 0 ? -EINVAL : -errno), path);
      return;
    }
    FileEntry row = entry_of(info, path);
    row.kind = FileKind::kLink;
    row.mode = 0777;
    row.size = 0;
    row.target = {target, static_cast<std::size_t>(n)};
    ++outcome_.entries;
    work_.channel.send_entry(row);
  }

  FileWork& work_;
  FileOutcome outcome_;
};

}  // namespace

FileOutcome pack_tree(FileWork& work) {
  Packer packer(work);
  struct stat info{};
  int fd = open_in_root(work.path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd == -ENOTDIR) {
    fd = open_regular(work.path.c_str(), info);
    if (fd < 0) {
      return failed(fd);
    }
    packer.contents(fd, info, {});
    return packer.outcome();
  }
  if (fd < 0 || fstat(fd, &info) != 0) {
    return failed(fd < 0 ? fd : -errno);
  }
  TreePath path;
  packer.directory(info, FileKind::kDirectory, {});
  walk_tree(work, fd, path, 0, packer);
  packer.directory(info, FileKind::kDirectoryEnd, {});
  return packer.outcome();
}

}  // namespace carrel::guest
