#include "base/file_copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace carrel {

namespace {

constexpr std::size_t kPiece = 256 << 10;

Error copy_error(const std::string& path) { return system_error("copy '" + path + "'"); }

bool is_zero(std::string_view piece) {
  return piece[0] == '\0' && piece.substr(1) == piece.substr(0, piece.size() - 1);
}

Status write_at(int to, std::string_view piece, off_t at, const std::string& path) {
  while (!piece.empty()) {
    const ssize_t n = ::pwrite(to, piece.data(), piece.size(), at);
    if (n < 0 && errno != EINTR) {
      return copy_error(path);
    }
    piece.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    at += std::max<ssize_t>(n, 0);
  }
  return {};
}

}  // namespace

bool share_contents(int from, int to) { return ::ioctl(to, FICLONE, from) == 0; }

Status copy_contents(int from, int to, std::uint64_t size, Sha256* hash, const std::string& path) {
  const auto end = static_cast<off_t>(size);
  std::string buffer(std::min<std::uint64_t>(size, kPiece), '\0');
  for (off_t at = 0; at < end;) {
    if (hash == nullptr) {
      const off_t data = ::lseek(from, at, SEEK_DATA);
      at = data < 0 && errno == ENXIO ? end : std::clamp(data, at, end);
      if (at == end) {
        break;
      }
    }
    const auto wanted =
        std::min<std::uint64_t>(buffer.size(), static_cast<std::uint64_t>(end - at));
    const ssize_t n = ::pread(from, buffer.data(), wanted, at);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return copy_error(path);
    }
    if (n == 0) {
      return Error{Code::kConflict, 0, "'" + path + "' shrank while it was read", {}};
    }
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(n));
    if (hash != nullptr) {
      hash->update(piece);
    }
    if (to >= 0 && !is_zero(piece)) {
      CARREL_TRY(write_at(to, piece, at, path));
    }
    at += n;
  }
  return to < 0 || ::ftruncate(to, end) == 0 ? Status{} : Status{copy_error(path)};
}

}  // namespace carrel
