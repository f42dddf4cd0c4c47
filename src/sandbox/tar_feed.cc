#include <algorithm>
#include <charconv>
#include <map>

#include "base/tree_writer.h"
#include "sandbox/gunzip.h"
#include "sandbox/tar_block.h"
#include "sandbox/tree_tar.h"

namespace carrel::sandbox {

namespace {

using protocol::FileEntry;
using protocol::FileKind;

constexpr std::uint64_t kLargestExtra = 64U << 10;  // a long name, or a pax header
constexpr std::uint64_t kMostEntries = 4'000'000;

Error broken(const std::string& why) {
  return Error{Code::kInvalid, 0, "the archive is not a whole tar: " + why,
               "a directory takes a tar, plain or by gzip"};
}

// What an extended header says about the entry that follows.
struct Extra {
  std::optional<std::string> path;
  std::optional<std::string> target;
  std::optional<std::uint64_t> size;
};

class Feeder {
 public:
  Feeder(const Files::Source& archive, TreeFeed& feed, std::vector<LeftOutFile>& left_out,
         const Progress& progress)
      : archive_(archive), feed_(feed), left_out_(left_out), progress_(progress) {}

  Status run() {
    for (;;) {
      TarBlock block{};
      CARREL_ASSIGN(const std::size_t got, fill(reinterpret_cast<char*>(&block), TarBlock::kSize));
      if (got == 0 && entries_ > 0) {
        break;  // some tools leave the end out
      }
      if (got < TarBlock::kSize) {
        return broken("it ends in the middle of a header");
      }
      if (std::all_of(reinterpret_cast<const char*>(&block),
                      reinterpret_cast<const char*>(&block) + TarBlock::kSize,
                      [](char c) { return c == '\0'; })) {
        break;
      }
      CARREL_TRY(take(block));
      if (++entries_ > kMostEntries) {
        return broken("it has more than " + std::to_string(kMostEntries) + " entries");
      }
    }
    return finish_directories();
  }

 private:
  // As many bytes as there are, up to `size`.
  Result<std::size_t> fill(char* place, std::size_t size) {
    std::size_t have = 0;
    while (have < size) {
      CARREL_ASSIGN(const std::size_t n, archive_(place + have, size - have));
      if (n == 0) {
        break;
      }
      have += n;
    }
    return have;
  }

  Status skip(std::uint64_t size) {
    std::array<char, 4096> unwanted{};
    while (size > 0) {
      const std::size_t piece = std::min<std::uint64_t>(size, unwanted.size());
      CARREL_ASSIGN(const std::size_t got, fill(unwanted.data(), piece));
      if (got < piece) {
        return broken("it ends in the middle of a file");
      }
      size -= piece;
    }
    return {};
  }

  static std::uint64_t padding_of(std::uint64_t size) {
    return (TarBlock::kSize - size % TarBlock::kSize) % TarBlock::kSize;
  }

  Status take(const TarBlock& block) {
    const auto sum = tar_number(block.checksum);
    const auto size = tar_number(block.size);
    if (!sum.has_value() || *sum != block.sum() || !size.has_value() ||
        *size > static_cast<std::uint64_t>(INT64_MAX) - TarBlock::kSize) {
      return broken("a header has the wrong checksum or size");
    }
    switch (block.type) {
      case 'x':
      case 'L':
      case 'K':
        return take_extra(block.type, *size);
      case 'g':
        return skip(*size + padding_of(*size));
      default:
        break;
    }
    Extra extra = std::move(extra_);
    extra_ = {};
    return take_entry(block, extra, extra.size.value_or(*size));
  }

  Status take_extra(char type, std::uint64_t size) {
    if (size > kLargestExtra) {
      return broken("an extended header is too large");
    }
    std::string text(size, '\0');
    CARREL_ASSIGN(const std::size_t got, fill(text.data(), text.size()));
    if (got < size) {
      return broken("it ends in the middle of a header");
    }
    CARREL_TRY(skip(padding_of(size)));
    if (type == 'x') {
      return take_pax(text);
    }
    text.resize(std::min(text.size(), text.find('\0')));
    (type == 'L' ? extra_.path : extra_.target) = text;
    return {};
  }

  Status take_pax(std::string_view text) {
    while (!text.empty()) {
      std::size_t size = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      const std::size_t digits = static_cast<std::size_t>(end - text.data());
      if (error != std::errc() || size > text.size() || size < digits + 3 || text[digits] != ' ' ||
          text[size - 1] != '\n') {
        return broken("a pax header makes no sense");
      }
      const std::string_view record = text.substr(digits + 1, size - digits - 2);
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) {
        return broken("a pax header makes no sense");
      }
      CARREL_TRY(take_record(record.substr(0, equals), record.substr(equals + 1)));
      text.remove_prefix(size);
    }
    return {};
  }

  Status take_record(std::string_view name, std::string_view value) {
    if (name == "path") {
      extra_.path = std::string(value);
    } else if (name == "linkpath") {
      extra_.target = std::string(value);
    } else if (name == "size") {
      std::uint64_t size = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (error != std::errc() || end != value.data() + value.size() ||
          size > static_cast<std::uint64_t>(INT64_MAX) - TarBlock::kSize) {
        return broken("a pax header has a wrong size");
      }
      extra_.size = size;
    }
    return {};
  }

  Status take_entry(const TarBlock& block, const Extra& extra, std::uint64_t size) {
    std::string raw = extra.path.value_or(std::string(tar_text(block.name)));
    if (!extra.path.has_value() && std::string_view(block.magic, 5) == "ustar" &&
        block.magic[5] == '\0' && block.prefix[0] != '\0') {
      raw = std::string(tar_text(block.prefix)) + "/" + raw;
    }
    const bool directory_name = !raw.empty() && raw.back() == '/';
    FileEntry entry;
    entry.mode = static_cast<std::uint32_t>(tar_number(block.mode).value_or(0644) & 0777);
    entry.modified_ns = tar_number(block.modified).value_or(0) % (1ULL << 34) * 1'000'000'000;
    std::string target = extra.target.value_or(std::string(tar_text(block.target)));
    const bool has_contents = block.type == '0' || block.type == '\0' || block.type == '7';
    if (!has_contents) {
      // Only files have contents, but what is announced is there.
      CARREL_TRY(skip(size + padding_of(size)));
    }
    auto path = normal_path(raw);
    Status told = !path.ok() ? Status{leave_out(raw, "leads out of the tree, or is too long")}
                             : tell(block.type, directory_name, path.value(), target, size, entry);
    CARREL_TRY(told);
    return has_contents && !copied_ ? skip(size + padding_of(size)) : Status{};
  }

  Status tell(char type, bool directory_name, const std::string& path, std::string& target,
              std::uint64_t size, FileEntry entry) {
    copied_ = false;
    entry.path = path;
    if (type == '5' || ((type == '0' || type == '\0') && directory_name)) {
      entry.kind = FileKind::kDirectory;
      CARREL_TRY(send(entry));
      if ((entry.mode & 0700) != 0700 && !path.empty()) {
        closed_[path] = entry.mode;  // to be set when its files are in it
      }
      return {};
    }
    if (path.empty()) {
      return leave_out(".", "is the directory itself");
    }
    if (type == '0' || type == '\0' || type == '7') {
      entry.size = size;
      copied_ = true;
      CARREL_TRY(send(entry));
      return contents(size);
    }
    if (type == '2' || type == '1') {
      entry.kind = type == '2' ? FileKind::kLink : FileKind::kHardLink;
      auto normal = normal_path(target);
      if (type == '1') {
        target = normal.ok() ? normal.value() : "";
      }
      if (target.empty() || target.size() > protocol::kMaxPath) {
        return leave_out(path, "is a link that leads out of the tree");
      }
      entry.target = target;
      return send(entry);
    }
    return leave_out(path, "is a pipe, a socket or a device");
  }

  Status send(const FileEntry& entry) {
    if (progress_) {
      progress_(bytes_, entries_ + 1);
    }
    return feed_.entry(entry);
  }

  Status contents(std::uint64_t size) {
    for (std::uint64_t left = size; left > 0;) {
      CARREL_ASSIGN(char* place, feed_.place());
      const std::size_t piece = std::min<std::uint64_t>(left, protocol::kFilePiece);
      CARREL_ASSIGN(const std::size_t got, fill(place, piece));
      if (got < piece) {
        return broken("it ends in the middle of a file");
      }
      feed_.placed(got);
      left -= got;
      bytes_ += got;
      if (progress_) {
        progress_(bytes_, entries_ + 1);
      }
    }
    return skip(padding_of(size));
  }

  Status finish_directories() {
    for (auto directory = closed_.rbegin(); directory != closed_.rend(); ++directory) {
      FileEntry entry;
      entry.kind = FileKind::kDirectoryEnd;
      entry.path = directory->first;
      entry.mode = directory->second;
      CARREL_TRY(feed_.entry(entry));
    }
    return {};
  }

  Status leave_out(std::string_view path, const char* reason) {
    copied_ = false;
    constexpr std::size_t kListed = 10'000;
    if (left_out_.size() < kListed) {
      left_out_.push_back({std::string(path.substr(0, 4096)), reason});
    }
    return {};
  }

  const Files::Source& archive_;
  TreeFeed& feed_;
  std::vector<LeftOutFile>& left_out_;
  const Progress& progress_;
  Extra extra_;
  std::map<std::string, std::uint32_t> closed_;  // directories that their owner may not write to
  std::uint64_t entries_ = 0;
  std::uint64_t bytes_ = 0;
  bool copied_ = false;
};

}  // namespace

Status feed_tar(const Files::Source& archive, TreeFeed& feed, std::vector<LeftOutFile>& left_out,
                const Progress& progress) {
  const Files::Source plain = gunzip_if_needed(archive);
  return Feeder(plain, feed, left_out, progress).run();
}

}  // namespace carrel::sandbox
