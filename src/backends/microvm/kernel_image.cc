#include "backends/microvm/kernel_image.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace carrel::microvm {

namespace {

constexpr std::size_t kLargestProgram = 256U << 20;
constexpr std::size_t kSector = 512;

Error cannot_unpack(const std::string& why) {
  return Error{Code::kUnsupported, 0, "the kernel's image cannot be unpacked: " + why,
               "name a kernel that is not compressed (vmlinux) with CARREL_VM_KERNEL"};
}

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  if (at <= bytes.size() && bytes.size() - at >= sizeof number) {
    std::memcpy(&number, bytes.data() + at, sizeof number);
  }
  return number;
}

// Where the boot protocol of x86 says that the compressed program is. Empty: nowhere.
std::string_view payload_of(std::string_view image) {
  constexpr std::size_t kSectorsAt = 0x1f1;
  constexpr std::size_t kMagicAt = 0x202;
  constexpr std::size_t kVersionAt = 0x206;
  constexpr std::size_t kPayloadAt = 0x248;
  constexpr std::uint32_t kFirstWithPayload = 0x208;
  if (image.size() < kPayloadAt + 8 || image.substr(kMagicAt, 4) != "HdrS" ||
      (number_at(image, kVersionAt) & 0xffffU) < kFirstWithPayload) {
    return {};
  }
  const auto sectors = static_cast<unsigned char>(image[kSectorsAt]);
  const std::size_t at =
      (std::max<std::size_t>(sectors, 1) + 1) * kSector + number_at(image, kPayloadAt);
  const std::size_t size = number_at(image, kPayloadAt + 4);
  return at <= image.size() && size <= image.size() - at ? image.substr(at, size)
                                                         : std::string_view();
}

bool unpack_gzip(std::string_view packed, std::string& out) {
  constexpr int kGzip = 15 + 16;
  z_stream stream{};
  if (::inflateInit2(&stream, kGzip) != Z_OK) {
    return false;
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int ended = ::inflate(&stream, Z_FINISH);
  ::inflateEnd(&stream);
  return ended == Z_STREAM_END && stream.avail_out == 0;
}

bool unpack_zstd(std::string_view packed, std::string& out) {
  return ::ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size()) == out.size();
}

// LZ4 as kernels have it: pieces with their size before them, whose content refers to nothing
// before its own piece.
class Lz4 {
 public:
  Lz4(std::string_view packed, std::string& out) : rest_(packed), out_(out) {}

  bool unpack() {
    while (!rest_.empty()) {
      const std::uint32_t size = number_at(rest_, 0);
      if (rest_.size() < 4 || size == 0 || size > rest_.size() - 4) {
        return false;
      }
      piece_ = rest_.substr(4, size);
      rest_.remove_prefix(4 + std::size_t{size});
      begin_ = end_;
      if (!unpack_piece()) {
        return false;
      }
    }
    return end_ == out_.size();
  }

 private:
  // A length of four bits, of which the largest means that more follows.
  bool take_length(unsigned bits, std::size_t& length) {
    length = bits;
    for (unsigned char byte = bits == 15 ? 255 : 0; byte == 255;) {
      if (piece_.empty() || length > kLargestProgram) {
        return false;
      }
      byte = static_cast<unsigned char>(piece_.front());
      piece_.remove_prefix(1);
      length += byte;
    }
    return true;
  }

  bool unpack_piece() {
    constexpr std::size_t kShortest = 4;
    while (!piece_.empty()) {
      const auto token = static_cast<unsigned char>(piece_.front());
      piece_.remove_prefix(1);
      std::size_t length = 0;
      if (!take_length(token >> 4U, length) || length > piece_.size() ||
          length > out_.size() - end_) {
        return false;
      }
      std::memcpy(out_.data() + end_, piece_.data(), length);
      end_ += length;
      piece_.remove_prefix(length);
      if (piece_.empty()) {
        return true;  // the last one has nothing to repeat
      }
      if (piece_.size() < 2) {
        return false;
      }
      const std::size_t back = static_cast<unsigned char>(piece_[0]) |
                               static_cast<std::size_t>(static_cast<unsigned char>(piece_[1]))
                                   << 8U;
      piece_.remove_prefix(2);
      if (back == 0 || back > end_ - begin_) {
        return false;
      }
      if (!take_length(token & 15U, length) || length + kShortest > out_.size() - end_) {
        return false;
      }
      length += kShortest;
      char* const at = out_.data() + end_;
      for (std::size_t i = 0; i < length; ++i) {  // it may repeat what it is just writing
        at[i] = at[static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(back)];
      }
      end_ += length;
    }
    return true;
  }

  std::string_view rest_;
  std::string_view piece_;
  std::string& out_;
  std::size_t begin_ = 0;  // of what came of this piece
  std::size_t end_ = 0;
};

}  // namespace

bool is_kernel_program(std::string_view file) {
  constexpr std::size_t kHeader = 64;
  constexpr std::string_view kLittleEndian64(
      "\x7f"
      "ELF\2\1",
      6);
  constexpr std::uint32_t kX86 = 62;
  const std::uint32_t kind = number_at(file, 16);  // and the machine, each of two bytes
  return file.size() >= kHeader && file.starts_with(kLittleEndian64) &&
         ((kind & 0xffffU) == 2 || (kind & 0xffffU) == 3) && kind >> 16U == kX86;
}

Result<std::string> unpack_kernel(std::string_view image) {
  constexpr std::string_view kGzipMagic("\x1f\x8b", 2);
  constexpr std::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);
  constexpr std::string_view kLz4Magic("\x02\x21\x4c\x18", 4);
  constexpr std::size_t kSize = 4;  // of the program, which is the last thing in the payload
  const std::string_view payload = payload_of(image);
  if (payload.size() < 2 * kSize) {
    return cannot_unpack("its header names no payload");
  }
  const std::size_t size = number_at(payload, payload.size() - kSize);
  if (size > kLargestProgram) {
    return cannot_unpack("it is too large");
  }
  std::string program(size, '\0');
  const std::string_view packed = payload.substr(0, payload.size() - kSize);
  bool whole = false;
  if (payload.starts_with(kGzipMagic)) {
    whole = unpack_gzip(payload, program);  // whose format ends with the size
  } else if (payload.starts_with(kZstdMagic)) {
    whole = unpack_zstd(packed, program);
  } else if (payload.starts_with(kLz4Magic)) {
    whole = Lz4(packed.substr(kLz4Magic.size()), program).unpack();
  } else {
    return cannot_unpack("it is compressed by something other than gzip, zstd or LZ4");
  }
  if (!whole) {
    return cannot_unpack("it is damaged");
  }
  if (!is_kernel_program(program)) {
    return cannot_unpack("it holds no program of x86-64");
  }
  return program;
}

}  // namespace carrel::microvm
