#include "sandbox/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace carrel::sandbox {

namespace {

constexpr std::size_t kPiece = 64U << 10;

class Gunzip {
 public:
  explicit Gunzip(const Files::Source& source)
      : source_(source), buffer_(std::make_unique_for_overwrite<unsigned char[]>(kPiece)) {}
  ~Gunzip() {
    if (state_ == State::kPacked) {
      ::inflateEnd(&stream_);
    }
  }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Result<std::size_t> read(char* place, std::size_t size) {
    if (state_ == State::kUnknown) {
      CARREL_TRY(look());
    }
    if (state_ == State::kPlain) {
      if (start_ == end_) {
        return source_(place, size);
      }
      const std::size_t piece = std::min(size, end_ - start_);
      std::memcpy(place, buffer_.get() + start_, piece);
      start_ += piece;
      return piece;
    }
    return state_ == State::kOver ? Result<std::size_t>(std::size_t{0}) : inflate(place, size);
  }

 private:
  enum class State { kUnknown, kPlain, kPacked, kOver };

  // The first two bytes tell.
  Status look() {
    while (end_ < 2) {
      CARREL_ASSIGN(const std::size_t n,
                    source_(reinterpret_cast<char*>(buffer_.get()) + end_, kPiece - end_));
      if (n == 0) {
        break;
      }
      end_ += n;
    }
    const bool packed = end_ >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b;
    state_ = packed ? State::kPacked : State::kPlain;
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (packed && ::inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      state_ = State::kOver;
      return Error{Code::kResource, 0, "no memory for an archive by gzip", {}};
    }
    return {};
  }

  Result<std::size_t> inflate(char* place, std::size_t size) {
    stream_.next_out = reinterpret_cast<unsigned char*>(place);
    stream_.avail_out = static_cast<unsigned>(std::min<std::size_t>(size, 1U << 30));
    const std::size_t room = stream_.avail_out;
    while (stream_.avail_out == room) {
      if (start_ == end_) {
        CARREL_ASSIGN(end_, source_(reinterpret_cast<char*>(buffer_.get()), kPiece));
        start_ = 0;
        if (end_ == 0) {
          return Error{Code::kInvalid, 0, "the archive by gzip ends too early", {}};
        }
      }
      stream_.next_in = buffer_.get() + start_;
      stream_.avail_in = static_cast<unsigned>(end_ - start_);
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      start_ = end_ - stream_.avail_in;
      if (result == Z_STREAM_END) {
        ::inflateEnd(&stream_);
        state_ = State::kOver;
        break;
      }
      if (result != Z_OK && result != Z_BUF_ERROR) {
        return Error{Code::kInvalid, 0, "the archive by gzip is broken", {}};
      }
    }
    return room - stream_.avail_out;
  }

  const Files::Source& source_;
  std::unique_ptr<unsigned char[]> buffer_;
  std::size_t start_ = 0;
  std::size_t end_ = 0;
  State state_ = State::kUnknown;
  z_stream stream_{};
};

}  // namespace

Files::Source gunzip_if_needed(const Files::Source& source) {
  auto gunzip = std::make_shared<Gunzip>(source);
  return [gunzip](char* place, std::size_t size) { return gunzip->read(place, size); };
}

}  // namespace carrel::sandbox
