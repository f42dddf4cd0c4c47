#include "http/response.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"

namespace carrel::http {

namespace {

constexpr std::size_t kLongestChunkLine = 4096;
constexpr std::uint64_t kLargestPlainBody = 1ULL << 50;

Error broken(const std::string& why) {
  return Error{Code::kDenied, 0, "the answer is not HTTP as it should be: " + why, {}};
}

template <typename Number>
bool read_number(std::string_view text, Number& number, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return !text.empty() && text.front() != '-' && error == std::errc() &&
         end == text.data() + text.size();
}

// "HTTP/1.1 200 OK"
Status read_status_line(std::string_view line, ResponseHead& head) {
  if (line.size() < 12 || !line.starts_with("HTTP/1.") || (line[7] != '0' && line[7] != '1') ||
      line[8] != ' ' || !read_number(line.substr(9, 3), head.status, 10) || head.status < 100 ||
      (line.size() > 12 && line[12] != ' ') || !is_value(line)) {
    return broken("it does not begin with a status");
  }
  head.minor_version = line[7] - '0';
  return {};
}

}  // namespace

const std::string* ResponseHead::find(std::string_view name) const {
  const Header* header = find_header(headers, name);
  return header == nullptr ? nullptr : &header->value;
}

std::optional<std::size_t> end_of_head(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  return end == std::string_view::npos ? std::nullopt : std::optional(end + 4);
}

Result<ResponseHead> parse_head(std::string_view bytes) {
  ResponseHead head;
  if (bytes.size() > kLargestHead || !bytes.ends_with("\r\n\r\n")) {
    return broken("its head has no end");
  }
  bytes.remove_suffix(2);
  const std::size_t end = bytes.find("\r\n");
  CARREL_TRY(read_status_line(bytes.substr(0, end), head));
  bytes.remove_prefix(end + 2);
  if (const std::string_view why = read_fields(bytes, head.headers); !why.empty()) {
    return broken(std::string(why));
  }
  if (count_headers(head.headers, "content-length") +
          count_headers(head.headers, "transfer-encoding") >
      1) {
    return broken("it says in two ways how long it is");
  }
  return head;
}

Result<BodyDecoder> BodyDecoder::after(const ResponseHead& head, Method method) {
  BodyDecoder decoder;
  const std::string* length = head.find("content-length");
  if (length != nullptr) {
    std::uint64_t bytes = 0;
    if (!read_number(*length, bytes, 10) || bytes > kLargestPlainBody) {
      return broken("its length is not a number");
    }
    decoder.length_ = bytes;
  }
  if (method == Method::kHead || head.status / 100 == 1 || head.status == 204 ||
      head.status == 304) {
    return decoder;
  }
  if (const std::string* coding = head.find("transfer-encoding"); coding != nullptr) {
    if (lower(*coding) != "chunked" || head.minor_version == 0) {
      return broken("it is encoded in a way that nobody asked for");
    }
    decoder.state_ = State::kChunkSize;
  } else if (decoder.length_.has_value()) {
    decoder.left_ = *decoder.length_;
    decoder.state_ = decoder.left_ == 0 ? State::kDone : State::kLength;
  } else {
    decoder.state_ = State::kUntilClose;
  }
  return decoder;
}

// Collects a line; the state changes when it is complete.
Result<std::size_t> BodyDecoder::take_line(std::string_view bytes) {
  const std::size_t end = bytes.find('\n');
  const std::size_t used = end == std::string_view::npos ? bytes.size() : end + 1;
  line_ += bytes.substr(0, used);
  if (line_.size() > kLongestChunkLine) {
    return broken("a line between its parts is too long");
  }
  if (end != std::string_view::npos) {
    if (!line_.ends_with("\r\n")) {
      return broken("a line between its parts does not end as it should");
    }
    line_.resize(line_.size() - 2);
    CARREL_TRY(end_line());
    line_.clear();
  }
  return used;
}

Status BodyDecoder::end_line() {
  if (state_ == State::kChunkSize) {
    // What follows a semicolon are extensions that nobody needs.
    const std::string_view size = trimmed(std::string_view(line_).substr(0, line_.find(';')));
    if (size.size() > 12 || !read_number(size, left_, 16)) {
      return broken("the size of a part is not a number");
    }
    state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
  } else if (state_ == State::kChunkEnd) {
    if (!line_.empty()) {
      return broken("a part is longer than it said");
    }
    state_ = State::kChunkSize;
  } else {
    trailer_bytes_ += line_.size();
    if (trailer_bytes_ > kLargestHead) {
      return broken("its trailer is too long");
    }
    state_ = line_.empty() ? State::kDone : State::kTrailer;
  }
  return {};
}

Result<std::size_t> BodyDecoder::feed(std::string_view bytes, const Sink& sink) {
  std::size_t used = 0;
  while (used < bytes.size() && !done()) {
    const std::string_view rest = bytes.substr(used);
    if (state_ == State::kUntilClose) {
      CARREL_TRY(sink(rest));
      used += rest.size();
    } else if (state_ == State::kLength || state_ == State::kChunkData) {
      const std::size_t size =
          static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
      CARREL_TRY(sink(rest.substr(0, size)));
      used += size;
      left_ -= size;
      if (left_ == 0) {
        state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
      }
    } else {
      CARREL_ASSIGN(const std::size_t taken, take_line(rest));
      used += taken;
    }
  }
  return used;
}

Status BodyDecoder::close() {
  if (state_ == State::kUntilClose) {
    state_ = State::kDone;
  }
  return done() ? Status()
                : Status(Error{Code::kUnavailable, 0, "the connection ended too early", {}});
}

}  // namespace carrel::http
