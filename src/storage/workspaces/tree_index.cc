#include "storage/workspaces/tree_index.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::storage {

namespace {

constexpr std::string_view kMagic = "carrel-index 2\n";
constexpr std::uint8_t kOpaque = 1;
constexpr std::int64_t kCoarseNs = 20'000'000;

// Writes into a text that is large enough from the start: there are many small pieces.
class Out {
 public:
  explicit Out(std::size_t most) : bytes_(most, '\0'), at_(bytes_.data()) {}
  template <typename Number>
  void number(const Number& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    raw(value);
  }
  void raw(std::string_view value) {
    std::memcpy(at_, value.data(), value.size());
    at_ += value.size();
  }
  [[nodiscard]] std::string_view written() const {
    return {bytes_.data(), static_cast<std::size_t>(at_ - bytes_.data())};
  }
  std::string take() {
    bytes_.resize(written().size());
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  char* at_;
};

class In {
 public:
  explicit In(std::string_view bytes) : bytes_(bytes) {}
  template <typename Number>
  Number number() {
    Number value{};
    if (ok_ && bytes_.size() >= sizeof value) {
      std::memcpy(&value, bytes_.data(), sizeof value);
      bytes_.remove_prefix(sizeof value);
    } else {
      ok_ = false;
    }
    return value;
  }
  std::string_view text() {
    const auto size = number<std::uint32_t>();
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

std::uint32_t checksum(std::string_view bytes) {
  return static_cast<std::uint32_t>(::crc32_z(
      0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

Error damaged() { return Error{Code::kInvalid, 0, "the index of the workspace is damaged", {}}; }

}  // namespace

bool is_certain(const ScannedEntry& before, const ScannedEntry& now, std::int64_t began_ns) {
  return before.kind == EntryKind::kFile && before.kind == now.kind && before.size == now.size &&
         before.mtime_ns == now.mtime_ns && before.evidence == now.evidence &&
         now.evidence.ctime_ns < began_ns - kCoarseNs && now.mtime_ns < began_ns - kCoarseNs;
}

bool has_same_attributes(const ScannedEntry& before, const ScannedEntry& now,
                         std::int64_t began_ns) {
  return before.kind == now.kind && before.evidence == now.evidence &&
         now.evidence.ctime_ns < began_ns - kCoarseNs;
}

std::string index_to_bytes(const TreeIndex& index) {
  std::size_t most = kMagic.size() + index.snapshot.size() + 64;
  for (const ScannedEntry& entry : index.entries) {
    most += entry.path.size() + entry.target.size() + entry.attributes.size() + 100;
  }
  Out out(most);
  out.raw(kMagic);
  out.text(index.snapshot);
  out.number(index.began_ns);
  out.number(static_cast<std::uint64_t>(index.entries.size()));
  for (const ScannedEntry& entry : index.entries) {
    out.text(entry.path);
    out.number(static_cast<char>(entry.kind));
    out.number(static_cast<std::uint8_t>(entry.opaque ? kOpaque : 0));
    out.number(static_cast<std::uint16_t>(entry.mode));
    out.number(entry.size);
    out.number(entry.mtime_ns);
    out.number(entry.evidence.inode);
    out.number(entry.evidence.ctime_ns);
    out.text(entry.target);
    out.number(entry.hash);
    out.text(entry.attributes);
  }
  out.number(checksum(out.written()));
  return out.take();
}

Result<TreeIndex> index_from_bytes(std::string_view bytes) {
  std::uint32_t sum = 0;
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + sizeof sum) {
    return damaged();
  }
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes.remove_suffix(sizeof sum);
  if (checksum(bytes) != sum) {
    return damaged();
  }
  In in(bytes.substr(kMagic.size()));
  TreeIndex index;
  index.snapshot = in.text();
  index.began_ns = in.number<std::int64_t>();
  const auto count = in.number<std::uint64_t>();
  if (count > bytes.size()) {
    return damaged();
  }
  index.entries.resize(count);
  for (ScannedEntry& entry : index.entries) {
    entry.path = in.text();
    entry.kind = static_cast<EntryKind>(in.number<char>());
    entry.opaque = (in.number<std::uint8_t>() & kOpaque) != 0;
    entry.mode = in.number<std::uint16_t>();
    entry.size = in.number<std::uint64_t>();
    entry.mtime_ns = in.number<std::int64_t>();
    entry.evidence.inode = in.number<std::uint64_t>();
    entry.evidence.ctime_ns = in.number<std::int64_t>();
    entry.target = in.text();
    entry.hash = in.number<ContentHash>();
    entry.attributes = in.text();
  }
  if (!in.ok() || !in.at_end()) {
    return damaged();
  }
  return index;
}

TreeIndex read_index(int directory, const std::string& name, const std::string& snapshot) {
  UniqueFd file(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (snapshot.empty() || !file.valid() || ::fstat(file.get(), &info) != 0 || info.st_size == 0) {
    return {};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return {};
  }
  auto index = index_from_bytes({static_cast<const char*>(data), size});
  ::munmap(data, size);
  if (!index.ok() || index->snapshot != snapshot) {
    return {};
  }
  return std::move(index.value());
}

Status write_index(int directory, const std::string& name, const TreeIndex& index) {
  const std::string draft = name + ".new";
  CARREL_ASSIGN(UniqueFd file,
                open_at(directory, draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  CARREL_TRY(write_all(file.get(), index_to_bytes(index)));
  if (::renameat(directory, draft.c_str(), directory, name.c_str()) != 0) {
    return system_error("store the index of the workspace");
  }
  return {};
}

}  // namespace carrel::storage
