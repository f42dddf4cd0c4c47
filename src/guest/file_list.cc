#include "guest/file_text.h"
#include "guest/file_tree.h"

namespace carrel::guest {

namespace {

using protocol::FileEntry;
using protocol::FileKind;
using protocol::FileOutcome;
using protocol::FileProblem;

constexpr std::uint64_t kMostListed = 1'000'000;

class Lister {
 public:
  explicit Lister(FileWork& work)
      : work_(work), most_(work.request.count < kMostListed ? work.request.count : kMostListed) {}

  Way visit(const TreeEntry& entry, std::string_view path) {
    if (is_left_out(work_, entry.name, entry.type)) {
      return Way::kPast;
    }
    if (work_.request.pattern.empty() || matches_pattern(entry.name, work_.request.pattern)) {
      if (listed_ >= most_) {
        cut_ = true;
        return Way::kStop;
      }
      send(entry, path);
    }
    return (work_.request.flags & protocol::kFileRecursive) != 0 ? Way::kInto : Way::kPast;
  }
  void leave(const TreeEntry& /*entry*/, std::string_view /*path*/) {}

  [[nodiscard]] FileOutcome outcome() const {
    FileOutcome end = cut_ ? problem(FileProblem::kTooMany, most_) : FileOutcome();
    end.entries = listed_;
    return end;
  }

 private:
  void send(const TreeEntry& entry, std::string_view path) {
    struct stat info{};
    if (fstatat(entry.directory, entry.name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return;  // it has just gone
    }
    FileEntry row = entry_of(info, path);
    char target[protocol::kMaxPath];
    if (row.kind == FileKind::kLink) {
      ssize_t n = readlinkat(entry.directory, entry.name, target, sizeof target);
      row.target =
          n <= 0 ? std::string_view("?") : std::string_view(target, static_cast<std::size_t>(n));
    }
    ++listed_;
    work_.channel.send_entry(row);
  }

  FileWork& work_;
  std::uint64_t most_;
  std::uint64_t listed_ = 0;
  bool cut_ = false;
};

}  // namespace

bool is_left_out(const FileWork& work, std::string_view name, unsigned char type) {
  if ((work.request.flags & protocol::kFileSkipUsual) != 0 &&
      is_usual_clutter(name, type == DT_DIR ? NameOf::kDirectory : NameOf::kFile)) {
    return true;
  }
  const char* next = work.request.excluded.data.data();
  for (std::uint32_t i = 0; i < work.request.excluded.count; ++i) {
    const std::string_view pattern(next);
    if (matches_pattern(name, pattern)) {
      return true;
    }
    next += pattern.size() + 1;
  }
  return false;
}

FileOutcome list_files(FileWork& work) {
  int fd = open_in_root(work.path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd == -ENOTDIR) {
    return stat_file(work);
  }
  if (fd < 0) {
    return failed(fd);
  }
  Lister lister(work);
  TreePath path;
  walk_tree(work, fd, path, 0, lister);
  return lister.outcome();
}

}  // namespace carrel::guest
