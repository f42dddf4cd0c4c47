#include "storage/workspaces/tree_index.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::storage {

namespace {

constexpr std::array<char, 16> kMagic = {'c', 'a', 'r', 'r', 'e', 'l', '-', 'i',
                                         'n', 'd', 'e', 'x', ' ', '4', '\n'};

constexpr char kDraft[] = ".new";
constexpr std::int64_t kCoarseNs = 20'000'000;

// What a file begins with; the records follow, and then the texts.
struct Header {
  std::array<char, 16> magic = kMagic;
  std::array<char, 32> snapshot{};
  std::int64_t began_ns = 0;
  std::uint64_t records = 0;
  std::uint64_t texts = 0;
  std::uint64_t sum = 0;  // of everything after it, and of what comes before
};
static_assert(sizeof(Header) % alignof(IndexRecord) == 0 && sizeof(IndexRecord) == 96 &&
              std::is_trivially_copyable_v<IndexRecord>);

// Tells whether a crash left a part of the file behind; nobody else writes to it.
std::uint64_t add_to_sum(std::uint64_t sum, const void* data, std::size_t size) {
  const auto mix = [](std::uint64_t before, std::uint64_t word) {
    return std::rotl((before ^ word) * 0x9e3779b97f4a7c15ULL, 29);
  };
  const char* at = static_cast<const char*>(data);
  // Four at a time: each step of one would wait for the one before it.
  std::array<std::uint64_t, 4> lanes = {sum, 1, 2, 3};
  for (; size >= sizeof lanes; at += sizeof lanes, size -= sizeof lanes) {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), at, sizeof words);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = mix(lanes[i], words[i]);
    }
  }
  sum = mix(mix(lanes[0], lanes[1]), mix(lanes[2], lanes[3]));
  for (; size > 0;) {
    std::uint64_t word = 0;
    const std::size_t piece = std::min(size, sizeof word);
    std::memcpy(&word, at, piece);
    sum = mix(sum, word);
    at += piece;
    size -= piece;
  }
  return sum;
}

std::uint64_t sum_of(const Header& header, const void* records, const void* texts) {
  std::uint64_t sum = add_to_sum(1, &header, offsetof(Header, sum));
  sum = add_to_sum(sum, records, header.records * sizeof(IndexRecord));
  return add_to_sum(sum, texts, header.texts);
}

// With the NULs after its path and its target.
std::size_t size_of_texts(const IndexRecord& record) {
  return std::size_t{record.path_size} + record.target_size + record.attributes_size + 2;
}

bool are_whole(std::span<const IndexRecord> records, std::size_t texts) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    const IndexRecord& record = records[i];
    const std::size_t size = size_of_texts(record);
    if (record.text > texts || size > texts - record.text || record.end <= i ||
        record.end > records.size()) {
      return false;
    }
  }
  return !records.empty() && records[0].path_size == 0;
}

std::size_t depth_of(std::string_view path) {
  return path.empty() ? 0 : 1 + static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

}  // namespace

void UnmapIndex::operator()(char* data) const { ::munmap(data, size); }

ScannedEntry TreeIndex::entry(std::size_t i) const {
  const IndexRecord& record = records_[i];
  ScannedEntry entry;
  entry.path = path(i);
  entry.kind = record.kind;
  entry.mode = record.mode;
  entry.size = record.size;
  entry.mtime_ns = record.mtime_ns;
  entry.hash = record.hash;
  entry.target = target(i);
  entry.attributes = attributes(i);
  entry.opaque = record.opaque;
  entry.evidence = {record.inode, record.ctime_ns};
  entry.left_out = record.left_out;
  return entry;
}

void IndexBuilder::add(const ScannedEntry& entry) {
  IndexRecord record;
  record.inode = entry.evidence.inode;
  record.mtime_ns = entry.mtime_ns;
  record.ctime_ns = entry.evidence.ctime_ns;
  record.size = entry.size;
  record.hash = entry.hash;
  record.text = texts_.size();
  record.left_out = entry.left_out;
  record.path_size = static_cast<std::uint16_t>(entry.path.size());
  record.target_size = static_cast<std::uint16_t>(entry.target.size());
  record.attributes_size = static_cast<std::uint16_t>(entry.attributes.size());
  record.mode = static_cast<std::uint16_t>(entry.mode);
  record.kind = entry.kind;
  record.opaque = entry.opaque;
  records_.push_back(record);
  for (const std::string& text : {std::cref(entry.path), std::cref(entry.target)}) {
    texts_.insert(texts_.end(), text.c_str(), text.c_str() + text.size() + 1);
  }
  texts_.insert(texts_.end(), entry.attributes.begin(), entry.attributes.end());
}

void IndexBuilder::add(const TreeIndex& from, std::size_t first, std::size_t last) {
  const IndexRecord& end = from[last - 1];
  const std::size_t begins = from[first].text;
  const std::size_t ends = end.text + size_of_texts(end);
  const std::size_t moved = texts_.size() - begins;
  texts_.insert(texts_.end(), from.texts_.begin() + static_cast<std::ptrdiff_t>(begins),
                from.texts_.begin() + static_cast<std::ptrdiff_t>(ends));
  for (std::size_t i = first; i < last; ++i) {
    records_.push_back(from[i]);
    records_.back().text = from[i].text + moved;
  }
}

TreeIndex IndexBuilder::finish(std::int64_t began_ns) {
  TreeIndex index;
  index.began_ns_ = began_ns;
  index.own_records_ = std::move(records_);
  index.own_texts_ = std::move(texts_);
  index.records_ = index.own_records_;
  index.texts_ = index.own_texts_;
  // From the last to the first: those that are not below something yet to come.
  struct Later {
    std::size_t depth;
    std::uint32_t number;
  };
  std::vector<Later> later;
  for (std::size_t i = index.own_records_.size(); i-- > 0;) {
    const std::size_t depth = depth_of(index.path(i));
    while (!later.empty() && later.back().depth > depth) {
      later.pop_back();
    }
    index.own_records_[i].end =
        later.empty() ? static_cast<std::uint32_t>(index.own_records_.size()) : later.back().number;
    later.push_back({depth, static_cast<std::uint32_t>(i)});
  }
  return index;
}

bool is_certain(const IndexRecord& before, const ScannedEntry& now, std::int64_t began_ns) {
  return before.kind == now.kind && before.mode == now.mode && before.size == now.size &&
         before.mtime_ns == now.mtime_ns && before.inode == now.evidence.inode &&
         before.ctime_ns == now.evidence.ctime_ns && now.evidence.ctime_ns < began_ns - kCoarseNs &&
         now.mtime_ns < began_ns - kCoarseNs;
}

bool has_same_attributes(const IndexRecord& before, const ScannedEntry& now,
                         std::int64_t began_ns) {
  return before.kind == now.kind && before.inode == now.evidence.inode &&
         before.ctime_ns == now.evidence.ctime_ns && now.evidence.ctime_ns < began_ns - kCoarseNs;
}

TreeIndex read_index(int directory, const std::string& name, const std::string& snapshot) {
  const UniqueFd file(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (snapshot.empty() || !file.valid() || ::fstat(file.get(), &info) != 0 ||
      info.st_size < static_cast<off_t>(sizeof(Header))) {
    return {};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return {};
  }
  TreeIndex index;
  index.file_ = {static_cast<char*>(data), UnmapIndex{size}};
  Header header;
  std::memcpy(&header, data, sizeof header);
  const std::size_t room = size - sizeof header;
  if (header.magic != kMagic || header.records > room / sizeof(IndexRecord) ||
      header.texts != room - header.records * sizeof(IndexRecord)) {
    return {};
  }
  const char* records = index.file_.get() + sizeof header;
  const char* texts = records + header.records * sizeof(IndexRecord);
  if (sum_of(header, records, texts) != header.sum || header.snapshot.back() != '\0' ||
      snapshot != header.snapshot.data()) {
    return {};
  }
  index.snapshot_ = snapshot;
  index.began_ns_ = header.began_ns;
  index.records_ = {reinterpret_cast<const IndexRecord*>(records), header.records};
  index.texts_ = {texts, header.texts};
  return are_whole(index.records_, index.texts_.size()) ? std::move(index) : TreeIndex();
}

Status draft_index(int directory, const std::string& name, const TreeIndex& index) {
  Header header;
  if (index.snapshot_.size() >= header.snapshot.size()) {
    return Error{Code::kInvalid, 0, "the snapshot's id '" + index.snapshot_ + "' is too long", {}};
  }
  std::memcpy(header.snapshot.data(), index.snapshot_.data(), index.snapshot_.size());
  header.began_ns = index.began_ns_;
  header.records = index.records_.size();
  header.texts = index.texts_.size();
  header.sum = sum_of(header, index.records_.data(), index.texts_.data());
  CARREL_ASSIGN(const UniqueFd file,
                open_at(directory, name + kDraft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  const auto bytes = [](const void* data, std::size_t size) {
    return std::string_view(static_cast<const char*>(data), size);
  };
  CARREL_TRY(write_all(file.get(), bytes(&header, sizeof header)));
  CARREL_TRY(write_all(file.get(), bytes(index.records_.data(), index.records_.size_bytes())));
  return write_all(file.get(), bytes(index.texts_.data(), index.texts_.size()));
}

Status place_index(int directory, const std::string& name) {
  const std::string draft = name + kDraft;
  // A rename over it would have the new one written to the disk first.
  ::unlinkat(directory, name.c_str(), 0);
  return ::renameat(directory, draft.c_str(), directory, name.c_str()) == 0
             ? Status{}
             : Status{system_error("store the index of the workspace")};
}

}  // namespace carrel::storage
