#include <algorithm>

#include "sandbox/tar_block.h"
#include "sandbox/tree_tar.h"

namespace carrel::sandbox {

namespace {

using protocol::FileEntry;
using protocol::FileKind;

constexpr std::uint64_t kMostOctal = 077777777777;  // in the eleven digits of a size

// One record of a pax header: its own length in decimal, a blank, NAME=VALUE and a newline.
std::string pax_record(std::string_view name, std::string_view value) {
  const std::size_t rest = name.size() + value.size() + 3;
  std::size_t size = rest + 1;
  while (std::to_string(size).size() + rest != size) {
    ++size;
  }
  return std::to_string(size) + " " + std::string(name) + "=" + std::string(value) + "\n";
}

std::string_view as_bytes(const TarBlock& block) {
  return {reinterpret_cast<const char*>(&block), TarBlock::kSize};
}

template <std::size_t kField>
void put_text(char (&field)[kField], std::string_view text) {
  if (!text.empty()) {
    std::memcpy(field, text.data(), std::min(text.size(), kField));
  }
}

std::uint64_t padding_of(std::uint64_t size) {
  return (TarBlock::kSize - size % TarBlock::kSize) % TarBlock::kSize;
}

TarBlock block_for(char type, std::string_view path, unsigned mode, std::uint64_t size) {
  TarBlock block{};
  put_text(block.name, path);
  put_octal(block.mode, mode);
  put_octal(block.uid, 0);
  put_octal(block.gid, 0);
  put_octal(block.size, size);
  put_octal(block.modified, 0);
  block.type = type;
  put_text(block.magic, std::string_view("ustar\0", 6));
  put_text(block.version, "00");
  return block;
}

void seal(TarBlock& block) {
  std::snprintf(block.checksum, sizeof block.checksum, "%06o", block.sum());
  block.checksum[7] = ' ';
}

}  // namespace

Status TarSink::write_header(char type, const std::string& path, const FileEntry& entry) {
  const std::uint64_t size = type == '0' ? entry.size : 0;
  std::string pax;
  if (path.size() > sizeof(TarBlock::name)) {
    pax += pax_record("path", path);
  }
  if (entry.target.size() > sizeof(TarBlock::target)) {
    pax += pax_record("linkpath", entry.target);
  }
  if (size > kMostOctal) {
    pax += pax_record("size", std::to_string(size));
  }
  if (!pax.empty()) {
    TarBlock block = block_for('x', "pax", 0644, pax.size());
    seal(block);
    CARREL_TRY(out_(as_bytes(block)));
    CARREL_TRY(out_(pax));
    CARREL_TRY(zeros(padding_of(pax.size())));
  }
  TarBlock block = block_for(type, path, entry.mode & 0777, std::min(size, kMostOctal));
  put_octal(block.modified, std::min(entry.modified_ns / 1'000'000'000, kMostOctal));
  put_text(block.target, entry.target);
  seal(block);
  return out_(as_bytes(block));
}

Status TarSink::entry(const FileEntry& entry) {
  CARREL_TRY(finish_file());
  std::string path = top_;
  if (!entry.path.empty()) {
    path += (path.empty() ? "" : "/") + std::string(entry.path);
  }
  switch (entry.kind) {
    case FileKind::kDirectory:
      return write_header('5', (path.empty() ? "." : path) + "/", entry);
    case FileKind::kLink:
      return write_header('2', path, entry);
    case FileKind::kFile:
      left_ = entry.size;
      padding_ = padding_of(entry.size);
      return write_header('0', path, entry);
    default:
      return {};  // the end of a directory
  }
}

Status TarSink::contents(std::string_view data) {
  left_ -= std::min<std::uint64_t>(left_, data.size());
  return out_(data);
}

Status TarSink::hole(std::uint64_t size) {
  left_ -= std::min(left_, size);
  return zeros(size);
}

Status TarSink::zeros(std::uint64_t size) {
  static constexpr std::array<char, 64U << 10> kZeros{};
  while (size > 0) {
    const std::size_t piece = std::min<std::uint64_t>(size, kZeros.size());
    CARREL_TRY(out_({kZeros.data(), piece}));
    size -= piece;
  }
  return {};
}

// A file that turned out to be shorter is filled up: its size has been told.
Status TarSink::finish_file() {
  CARREL_TRY(zeros(left_ + padding_));
  left_ = padding_ = 0;
  return {};
}

Status TarSink::finish() {
  CARREL_TRY(finish_file());
  return zeros(2 * TarBlock::kSize);
}

}  // namespace carrel::sandbox
