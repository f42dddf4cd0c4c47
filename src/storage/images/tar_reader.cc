#include "storage/images/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>

#include "sandbox/tar_block.h"

namespace carrel::storage {

namespace {

using sandbox::tar_number;
using sandbox::tar_text;
using sandbox::TarBlock;

constexpr std::uint64_t kLargestExtra = 1U << 20;  // a long name, or a pax header
constexpr unsigned kMostExtras = 16;               // headers before one entry
constexpr std::uint64_t kLargestFile = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::size_t kMostPieces = 1U << 20;
constexpr std::uint64_t kMostUnused = 64U << 20;  // what an archive has that is part of no file
constexpr std::uint64_t kFreeOfEntry = 8U << 10;  // and what an entry may have of that for nothing
constexpr std::size_t kSparseInHeader = 4;
constexpr std::size_t kSparseInBlock = 21;

Error damaged(std::string_view why) {
  return Error{Code::kDenied, 0, "the archive is damaged: " + std::string(why), {}};
}

std::uint64_t padding_of(std::uint64_t size) {
  return (TarBlock::kSize - size % TarBlock::kSize) % TarBlock::kSize;
}

Result<std::uint64_t> decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kLargestFile) {
    return damaged("'" + std::string(text.substr(0, 32)) + "' is no size");
  }
  return value;
}

// Seconds with a fraction, such as 1700000000.25. A time that makes no sense is none.
std::optional<timespec> time_from(std::string_view text) {
  timespec time{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time.tv_sec);
  if (error != std::errc()) {
    return std::nullopt;
  }
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (!rest.empty() && rest.front() == '.' && time.tv_sec >= 0) {
    std::string digits(rest.substr(1, 9));
    digits.resize(9, '0');
    std::from_chars(digits.data(), digits.data() + digits.size(), time.tv_nsec);
  }
  return time;
}

// A place and a length of GNU's old form of sparse files.
struct SparsePair {
  char offset[12];
  char size[12];
};

// The end of a header of that form; it begins where the prefix of a name is elsewhere.
constexpr std::size_t kOldSparseAt = 386;
struct OldSparseEnd {
  std::array<SparsePair, kSparseInHeader> pieces;
  char more;
  char real_size[12];
};

bool is_zero(const char* bytes, std::size_t size) {
  return std::all_of(bytes, bytes + size, [](char c) { return c == '\0'; });
}

TarEntry::Kind kind_of(char type, std::string_view path) {
  switch (type) {
    case '1':
      return TarEntry::Kind::kHardLink;
    case '2':
      return TarEntry::Kind::kSymbolicLink;
    case '3':
    case '4':
    case '6':
      return TarEntry::Kind::kOther;
    case '5':
    case 'D':
      return TarEntry::Kind::kDirectory;
    default:  // POSIX: an unknown type is a file. Before POSIX a name with a slash was a directory.
      return path.ends_with('/') && (type == '0' || type == '\0') ? TarEntry::Kind::kDirectory
                                                                  : TarEntry::Kind::kFile;
  }
}

// Whether the size in the header is that of contents that follow. A hard link may have the size of
// its file, whose contents are elsewhere; what is a directory by its slash alone may have contents.
bool has_contents(char type, TarEntry::Kind kind) {
  return kind == TarEntry::Kind::kFile || type == 'D' || type == '0' || type == '\0';
}

}  // namespace

struct TarReader::Block : TarBlock {
  [[nodiscard]] bool is_ustar() const {
    return std::string_view(magic, sizeof magic) == std::string_view("ustar\0", 6);
  }
  [[nodiscard]] std::string path() const {
    const bool has_prefix = is_ustar() && prefix[0] != '\0';
    return (has_prefix ? std::string(tar_text(prefix)) + "/" : "") + std::string(tar_text(name));
  }
  // Some old tools add bytes that have a sign.
  [[nodiscard]] std::uint64_t sum_of_signed() const {
    std::uint64_t total = sum();
    const auto* bytes = reinterpret_cast<const unsigned char*>(this);
    for (std::size_t i = 0; i < kSize; ++i) {
      const bool inside = i >= offsetof(TarBlock, checksum) && i < offsetof(TarBlock, type);
      total -= !inside && bytes[i] >= 0x80 ? 256U : 0U;
    }
    return total;
  }
  [[nodiscard]] bool has_its_sum() const {
    const auto claimed = tar_number(checksum);
    return claimed.has_value() && (*claimed == sum() || *claimed == sum_of_signed());
  }
};

// Up to so many bytes of the stream; none at its end.
Result<std::string_view> TarReader::some(std::uint64_t most) {
  if (rest_.empty()) {
    CARREL_ASSIGN(rest_, source_());
  }
  const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(most));
  rest_.remove_prefix(taken.size());
  return taken;
}

// As many bytes as there are, up to `size`.
Result<std::size_t> TarReader::fill(char* place, std::size_t size) {
  std::size_t have = 0;
  while (have < size) {
    CARREL_ASSIGN(const std::string_view got, some(size - have));
    if (got.empty()) {
      break;
    }
    std::memcpy(place + have, got.data(), got.size());
    have += got.size();
  }
  return have;
}

// What is part of no file counts against no limit of the tree's: a few compressed bytes could keep
// a reader at work for days.
Status TarReader::spend(std::uint64_t size) {
  if (size > kMostUnused - unused_) {
    return damaged("too much in it is part of no file");
  }
  unused_ += size;
  return {};
}

// What an entry has besides contents, such as a long name or a map: honest ones have a little of
// it.
Status TarReader::spend_on_entry(std::uint64_t size) {
  const std::uint64_t for_nothing = std::min(size, kFreeOfEntry - extra_.free_used);
  extra_.free_used += for_nothing;
  return spend(size - for_nothing);
}

Status TarReader::skip(std::uint64_t size) {
  while (size > 0) {
    CARREL_ASSIGN(const std::string_view got, some(size));
    if (got.empty()) {
      return damaged("it ends in the middle of an entry");
    }
    size -= got.size();
  }
  return {};
}

// False: that was the end, which some tools leave out.
Result<bool> TarReader::read_header(Block& block) {
  char* bytes = reinterpret_cast<char*>(&block);
  CARREL_ASSIGN(const std::size_t got, fill(bytes, TarBlock::kSize));
  if ((got == 0 && began_) || (got == TarBlock::kSize && is_zero(bytes, got))) {
    return false;
  }
  if (got < TarBlock::kSize || !block.has_its_sum()) {
    return began_ ? damaged("it has no header where one has to be")
                  : Error{Code::kInvalid, 0, "this is no tar archive", {}};
  }
  began_ = true;
  return true;
}

Result<std::optional<TarEntry>> TarReader::next() {
  CARREL_TRY(spend(stored_));
  CARREL_TRY(skip(stored_ + padding_));
  stored_ = padding_ = 0;
  pieces_.clear();
  piece_ = 0;
  for (;;) {
    Block block{};
    CARREL_ASSIGN(const bool found, read_header(block));
    if (!found) {
      return std::optional<TarEntry>();
    }
    const auto size = tar_number(block.size);
    if (!size.has_value() || *size > kLargestFile) {
      return damaged("an entry has a size that makes no sense");
    }
    if (std::string_view("xXLK").find(block.type) != std::string_view::npos) {
      CARREL_TRY(take_extra(block.type, *size));
    } else if (std::string_view("gAV").find(block.type) != std::string_view::npos) {
      const std::uint64_t body = *size + padding_of(*size);
      CARREL_TRY(spend(TarBlock::kSize + body));
      CARREL_TRY(skip(body));
    } else if (block.type == 'M') {
      return Error{Code::kDenied, 0, "the archive is one volume of several",
                   "unpack all of them with tar and import the directory"};
    } else {
      CARREL_ASSIGN(TarEntry entry, make_entry(block, extra_.size.value_or(*size)));
      extra_ = Extra();
      return std::optional<TarEntry>(std::move(entry));
    }
  }
}

Status TarReader::take_extra(char type, std::uint64_t size) {
  if (size > kLargestExtra || extra_.headers == kMostExtras) {
    return damaged("an extended header is too large");
  }
  ++extra_.headers;
  CARREL_TRY(spend_on_entry(TarBlock::kSize + size + padding_of(size)));
  std::string text(static_cast<std::size_t>(size), '\0');
  CARREL_ASSIGN(const std::size_t got, fill(text.data(), text.size()));
  if (got < text.size()) {
    return damaged("it ends in the middle of a header");
  }
  CARREL_TRY(skip(padding_of(size)));
  if (type == 'x' || type == 'X') {
    return take_pax(text);
  }
  text.resize(std::min(text.size(), text.find('\0')));
  (type == 'L' ? extra_.path : extra_.target) = text;
  return {};
}

// Records "SIZE KEY=VALUE\n", where SIZE counts all of the record.
Status TarReader::take_pax(std::string_view text) {
  while (!text.empty()) {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || size > text.size() || size < digits + 3 || text[digits] != ' ' ||
        text[size - 1] != '\n') {
      return damaged("a pax header makes no sense");
    }
    const std::string_view record = text.substr(digits + 1, size - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) {
      return damaged("a pax header makes no sense");
    }
    CARREL_TRY(take_record(record.substr(0, equals), record.substr(equals + 1)));
    text.remove_prefix(size);
  }
  return {};
}

// An empty name or size is that of the header, whatever was said before.
Status TarReader::take_record(std::string_view key, std::string_view value) {
  if (key == "path" || key == "linkpath" || key == "GNU.sparse.name") {
    if (value.find('\0') != std::string_view::npos) {
      return damaged("a name has a NUL in it");
    }
    std::optional<std::string>& name = key == "path"       ? extra_.path
                                       : key == "linkpath" ? extra_.target
                                                           : extra_.sparse_name;
    name.reset();
    if (!value.empty()) {
      name = std::string(value);
    }
  } else if (key == "size") {
    extra_.size.reset();
    if (!value.empty()) {
      CARREL_ASSIGN(extra_.size, decimal(value));
    }
  } else if (key == "mtime") {
    extra_.modified = time_from(value);
  } else if (key.starts_with("SCHILY.xattr.") || key.starts_with("LIBARCHIVE.xattr.")) {
    extra_.has_attributes = true;
  } else if (key.starts_with("GNU.sparse.")) {
    return take_sparse_record(key.substr(11), value);
  }
  return {};
}

Status TarReader::add_piece(std::string_view offset, std::string_view size) {
  CARREL_ASSIGN(const std::uint64_t at, decimal(offset));
  CARREL_ASSIGN(const std::uint64_t length, decimal(size));
  if (extra_.pieces->size() >= kMostPieces) {
    return damaged("a sparse file has too many parts");
  }
  extra_.pieces->push_back({at, length});
  return {};
}

// "OFFSET,SIZE,OFFSET,SIZE"
Status TarReader::take_map(std::string_view map) {
  while (!map.empty()) {
    const std::size_t comma = map.find(',');
    if (comma == std::string_view::npos) {
      return damaged("the map of a sparse file makes no sense");
    }
    const std::size_t end = std::min(map.size(), map.find(',', comma + 1));
    CARREL_TRY(add_piece(map.substr(0, comma), map.substr(comma + 1, end - comma - 1)));
    map.remove_prefix(std::min(map.size(), end + 1));
  }
  return {};
}

// The three forms of GNU tar: a record for each number, a list of them, or a list in the contents.
Status TarReader::take_sparse_record(std::string_view key, std::string_view value) {
  if (key == "map" || key == "numblocks") {
    extra_.pieces.emplace();
    return key == "map" ? take_map(value) : Status{};
  }
  if (key == "numbytes" && extra_.pieces.has_value()) {
    return add_piece(extra_.piece_offset, value);
  }
  if (key == "offset") {
    extra_.piece_offset = std::string(value);
  } else if (key == "realsize" || key == "size") {
    CARREL_ASSIGN(extra_.real_size, decimal(value));
  } else if (key == "major") {
    extra_.has_map_in_contents = value == "1";
  }
  return {};
}

Result<TarEntry> TarReader::make_entry(const Block& block, std::uint64_t stored) {
  TarEntry entry;
  entry.path = extra_.sparse_name.value_or(extra_.path.value_or(block.path()));
  entry.target = extra_.target.value_or(std::string(tar_text(block.target)));
  entry.kind = kind_of(block.type, entry.path);
  entry.mode = static_cast<unsigned>(tar_number(block.mode).value_or(0) & 07777);
  entry.has_attributes = extra_.has_attributes;
  const auto seconds = tar_number(block.modified).value_or(0);
  entry.modified.tv_sec = static_cast<time_t>(std::min<std::uint64_t>(seconds, kLargestFile));
  entry.modified = extra_.modified.value_or(entry.modified);
  stored_ = has_contents(block.type, entry.kind) ? stored : 0;
  padding_ = padding_of(stored_);
  if (entry.kind == TarEntry::Kind::kFile) {
    CARREL_TRY(set_pieces(block, entry, stored));
  }
  return entry;
}

// Where the contents of a file go; all of them in one piece, unless it is sparse.
Status TarReader::set_pieces(const Block& block, TarEntry& entry, std::uint64_t stored) {
  entry.size = extra_.real_size.value_or(stored);
  if (block.type == 'S') {
    CARREL_TRY(read_old_map(block, entry));
  } else if (extra_.has_map_in_contents) {
    CARREL_TRY(read_map_in_contents(entry));
  } else if (extra_.pieces.has_value()) {
    entry.pieces = std::move(*extra_.pieces);
  } else {
    entry.size = stored;
    entry.pieces = {{0, stored}};
  }
  std::uint64_t end = 0;
  std::uint64_t sum = 0;
  for (const TarEntry::Piece& piece : entry.pieces) {
    if (piece.offset < end || piece.size > entry.size || piece.offset > entry.size - piece.size) {
      return damaged("the parts of a sparse file overlap or are outside of it");
    }
    end = piece.offset + piece.size;
    sum += piece.size;
  }
  if (sum != stored_) {
    return damaged("the parts of a sparse file are not what is there");
  }
  pieces_ = entry.pieces;
  return {};
}

// Some places and lengths of GNU's old form, up to the first that is not there.
Status TarReader::take_old_pieces(const char* bytes, std::size_t count, TarEntry& entry) {
  for (std::size_t i = 0; i < count; ++i) {
    SparsePair pair{};
    std::memcpy(&pair, bytes + i * sizeof pair, sizeof pair);
    if (pair.offset[0] == '\0' || pair.size[0] == '\0') {
      break;
    }
    const auto offset = tar_number(pair.offset);
    const auto size = tar_number(pair.size);
    if (!offset || !size || *offset > kLargestFile || *size > kLargestFile ||
        entry.pieces.size() >= kMostPieces) {
      return damaged("the map of a sparse file makes no sense");
    }
    entry.pieces.push_back({*offset, *size});
  }
  return {};
}

// Four parts in the header, and more in the blocks that follow it.
Status TarReader::read_old_map(const Block& block, TarEntry& entry) {
  OldSparseEnd end{};
  const char* bytes = reinterpret_cast<const char*>(&block);
  std::memcpy(&end, bytes + kOldSparseAt, sizeof end);
  const auto real_size = tar_number(end.real_size);
  if (!real_size || *real_size > kLargestFile) {
    return damaged("a sparse file has a size that makes no sense");
  }
  entry.size = *real_size;
  CARREL_TRY(take_old_pieces(bytes + kOldSparseAt, kSparseInHeader, entry));
  for (bool more = end.more != '\0'; more;) {
    std::array<char, TarBlock::kSize> next{};
    CARREL_TRY(spend(next.size()));
    CARREL_ASSIGN(const std::size_t got, fill(next.data(), next.size()));
    if (got < next.size()) {
      return damaged("it ends in the middle of a header");
    }
    CARREL_TRY(take_old_pieces(next.data(), kSparseInBlock, entry));
    more = next[kSparseInBlock * sizeof(SparsePair)] != '\0';
  }
  return {};
}

// Numbers in lines of their own: how many parts there are, then place and length of each.
Status TarReader::read_map_in_contents(TarEntry& entry) {
  const std::uint64_t before = stored_;
  CARREL_ASSIGN(const std::uint64_t count, read_line_number());
  if (count > kMostPieces) {
    return damaged("a sparse file has too many parts");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    CARREL_ASSIGN(const std::uint64_t offset, read_line_number());
    CARREL_ASSIGN(const std::uint64_t size, read_line_number());
    entry.pieces.push_back({offset, size});
  }
  const std::uint64_t rest = padding_of(before - stored_);
  if (rest > stored_) {
    return damaged("the map of a sparse file makes no sense");
  }
  CARREL_TRY(skip(rest));
  stored_ -= rest;
  return spend_on_entry(before - stored_);
}

Result<std::uint64_t> TarReader::read_line_number() {
  std::string digits;
  while (stored_ > 0 && digits.size() < 20) {
    char c = '\0';
    CARREL_ASSIGN(const std::size_t got, fill(&c, 1));
    if (got == 0) {
      break;
    }
    --stored_;
    if (c == '\n') {
      return decimal(digits);
    }
    digits += c;
  }
  return damaged("the map of a sparse file makes no sense");
}

Result<TarReader::Data> TarReader::data() {
  while (piece_ < pieces_.size() && pieces_[piece_].size == 0) {
    ++piece_;
  }
  if (stored_ == 0 || piece_ == pieces_.size()) {
    return Data{};
  }
  TarEntry::Piece& piece = pieces_[piece_];
  CARREL_ASSIGN(const std::string_view got, some(piece.size));
  if (got.empty()) {
    return damaged("it ends in the middle of a file");
  }
  const Data data{piece.offset, got};
  piece.offset += got.size();
  piece.size -= got.size();
  stored_ -= got.size();
  return data;
}

}  // namespace carrel::storage
