#pragma once

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// One entry of a tar archive. Its names are the bytes that the archive has, in no encoding.
struct TarEntry {
  enum class Kind { kFile, kDirectory, kSymbolicLink, kHardLink, kOther };
  // Where contents of a sparse file belong; between them are holes.
  struct Piece {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  Kind kind = Kind::kOther;
  std::string path;
  std::string target;  // of a link
  unsigned mode = 0;
  std::uint64_t size = 0;  // of the file, with its holes
  timespec modified{};
  std::vector<Piece> pieces;  // in order
  bool has_attributes = false;
};

// Reads a tar archive from a stream of bytes that nobody trusts: POSIX ustar and pax, GNU tar with
// its long names and sparse files, and the form before all of these. libarchive is not used for
// this: it changes names to the composed form of Unicode, and what it does to names that are not
// UTF-8 depends on the C library's locale.
//
//   TarReader reader(source);
//   CARREL_ASSIGN(std::optional<TarEntry> entry, reader.next());   // nothing at the end
//   CARREL_ASSIGN(TarReader::Data data, reader.data());            // empty bytes: that was all
class TarReader {
 public:
  // The next bytes, valid until the next call; none at the end of the stream.
  using Source = std::function<Result<std::string_view>()>;
  struct Data {
    std::uint64_t offset = 0;  // in the file
    std::string_view bytes;    // valid until the next call of the reader
  };

  explicit TarReader(Source source) : source_(std::move(source)) {}

  // Contents of the entry before that were not read are skipped. kInvalid: the first block is no
  // header of a tar; kDenied: a later one is not, or the archive contradicts itself.
  Result<std::optional<TarEntry>> next();
  Result<Data> data();

 private:
  // What extended headers say about the entry that follows them.
  struct Extra {
    std::optional<std::string> path;
    std::optional<std::string> target;
    std::optional<std::uint64_t> size;
    std::optional<timespec> modified;
    unsigned headers = 0;
    std::uint64_t free_used = 0;  // of what an entry may have for nothing
    bool has_attributes = false;
    bool has_map_in_contents = false;  // GNU's sparse files, version 1.0
    std::optional<std::uint64_t> real_size;
    std::optional<std::vector<TarEntry::Piece>> pieces;
    std::string piece_offset;
    std::optional<std::string> sparse_name;
  };
  struct Block;

  Result<std::string_view> some(std::uint64_t most);
  Result<std::size_t> fill(char* place, std::size_t size);
  Status spend(std::uint64_t size);
  Status spend_on_entry(std::uint64_t size);
  Status skip(std::uint64_t size);
  Result<bool> read_header(Block& block);
  Status take_extra(char type, std::uint64_t size);
  Status take_pax(std::string_view text);
  Status take_record(std::string_view key, std::string_view value);
  Status add_piece(std::string_view offset, std::string_view size);
  Status take_map(std::string_view map);
  Status take_sparse_record(std::string_view key, std::string_view value);
  Result<TarEntry> make_entry(const Block& block, std::uint64_t stored);
  Status set_pieces(const Block& block, TarEntry& entry, std::uint64_t stored);
  static Status take_old_pieces(const char* bytes, std::size_t count, TarEntry& entry);
  Status read_old_map(const Block& block, TarEntry& entry);
  Status read_map_in_contents(TarEntry& entry);
  Result<std::uint64_t> read_line_number();

  Source source_;
  std::string_view rest_;  // what was got from the source and not yet used
  Extra extra_;
  bool began_ = false;
  std::uint64_t stored_ = 0;   // contents of this entry that are still in the stream
  std::uint64_t padding_ = 0;  // and what follows them
  std::uint64_t unused_ = 0;   // of all entries: what was part of no file
  std::vector<TarEntry::Piece> pieces_;
  std::size_t piece_ = 0;
};

}  // namespace carrel::storage
