#include "guest/file_text.h"
#include "guest/file_tree.h"

namespace carrel::guest {

namespace {

using protocol::FileMatch;
using protocol::FileOutcome;
using protocol::FileProblem;

constexpr std::size_t kBuffer = 256U << 10;
constexpr std::uint64_t kMostMatches = 100'000;
constexpr std::size_t kLooked = 8192;  // a file with a zero byte in its beginning is no text

std::size_t before(std::string_view text, std::size_t at) {
  return at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
}

class Searcher {
 public:
  explicit Searcher(FileWork& work)
      : work_(work),
        most_(work.request.count < kMostMatches ? work.request.count : kMostMatches),
        letters_((work.request.flags & protocol::kFileIgnoreCase) != 0 ? LetterCase::kIgnored
                                                                       : LetterCase::kExact) {}

  Way visit(const TreeEntry& entry, std::string_view path) {
    if (is_left_out(work_, entry.name, entry.type)) {
      return Way::kPast;
    }
    if (entry.type == DT_REG) {
      struct stat info{};
      int fd = open_regular_at(entry.directory, entry.name, info);
      if (fd >= 0) {
        search(fd, path);
        close(fd);
      } else if (fd != -ENOENT) {
        note(work_, failed(fd), path);
      }
    }
    if (cut_) {
      return Way::kStop;
    }
    return (work_.request.flags & protocol::kFileRecursive) != 0 ? Way::kInto : Way::kPast;
  }
  void leave(const TreeEntry& /*entry*/, std::string_view /*path*/) {}

  void search(int fd, std::string_view path) {
    static char buffer[kBuffer];
    std::size_t have = 0;
    std::uint64_t line = 1;
    bool first = true;
    for (bool more = true; more && !cut_;) {
      ssize_t n = read(fd, buffer + have, kBuffer - have);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        note(work_, failed(-errno), path);
        return;
      }
      more = n > 0;
      have += static_cast<std::size_t>(n);
      if (first && memchr(buffer, '\0', have < kLooked ? have : kLooked) != nullptr) {
        return;
      }
      first = false;
      std::string_view data(buffer, have);
      const std::size_t newline = data.rfind('\n');
      std::size_t whole = !more ? have : newline == std::string_view::npos ? 0 : newline + 1;
      if (whole == 0 && have == kBuffer) {  // a line without an end: the pattern may lie across
        whole = have - (work_.request.pattern.size() - 1);
      }
      line = scan(data.substr(0, whole), line, path);
      memmove(buffer, buffer + whole, have - whole);
      have -= whole;
      more = more && !work_.channel.gone();
    }
  }

  [[nodiscard]] FileOutcome outcome() const {
    FileOutcome end = cut_ ? problem(FileProblem::kTooMany, most_) : FileOutcome();
    end.entries = found_;
    return end;
  }

 private:
  // Looks through whole lines, the first of which has that number; returns that of the next.
  std::uint64_t scan(std::string_view data, std::uint64_t line, std::string_view path) {
    std::size_t counted = 0;
    for (std::size_t at = 0; at < data.size() && !cut_;) {
      const std::size_t hit = find_text(part(data, at), work_.request.pattern, letters_);
      if (hit == std::string_view::npos) {
        break;
      }
      const std::size_t where = at + hit;
      for (; counted < where; ++counted) {
        line += data[counted] == '\n' ? 1U : 0U;
      }
      const std::size_t end = data.find('\n', where);
      const std::size_t start = before(data, where) + 1;
      show(data.substr(0, end), start, where, line, path);
      at = end == std::string_view::npos ? data.size() : end + 1;
    }
    for (; counted < data.size(); ++counted) {
      line += data[counted] == '\n' ? 1U : 0U;
    }
    return line;
  }

  // The line from its start, or from a little before the hit if that is far inside.
  void show(std::string_view up_to_end, std::size_t start, std::size_t hit, std::uint64_t line,
            std::string_view path) {
    if (found_ >= most_) {
      cut_ = true;
      return;
    }
    ++found_;
    if (hit - start > protocol::kMaxLineShown / 2) {
      start = hit - protocol::kMaxLineShown / 4;
    }
    unsigned char buffer[protocol::kMaxPath + protocol::kMaxLineShown + 64];
    protocol::Writer writer(buffer);
    protocol::write_file_match(writer,
                               {line, path, part(up_to_end, start, protocol::kMaxLineShown)});
    work_.channel.send(protocol::FrameType::kFileMatch,
                       {reinterpret_cast<const char*>(buffer), writer.size()});
  }

  FileWork& work_;
  std::uint64_t most_;
  LetterCase letters_;
  std::uint64_t found_ = 0;
  bool cut_ = false;
};

}  // namespace

FileOutcome search_files(FileWork& work) {
  Searcher searcher(work);
  int fd = open_in_root(work.path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd == -ENOTDIR) {
    struct stat info{};
    fd = open_regular(work.path.c_str(), info);
    if (fd >= 0) {
      searcher.search(fd, {});
      close(fd);
      return searcher.outcome();
    }
  }
  if (fd < 0) {
    return failed(fd);
  }
  TreePath path;
  walk_tree(work, fd, path, 0, searcher);
  return searcher.outcome();
}

}  // namespace carrel::guest
