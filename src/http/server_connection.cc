#include "http/server_connection.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

namespace carrel::http {
namespace {

constexpr std::size_t kPiece = 16U << 10;
constexpr std::size_t kMostSkipped = 256U << 10;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  const std::size_t size =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text.data(), size);
}

bool has_no_body(int status) { return status < 200 || status == 204 || status == 304; }

}  // namespace

std::string_view status_words(int status) {
  switch (status) {
    case 101:
      return "Switching Protocols";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 421:
      return "Misdirected Request";
    case 426:
      return "Upgrade Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Answer";
  }
}

Status ServerConnection::fill(Deadline deadline) {
  const std::size_t had = buffer_.size();
  buffer_.resize(had + kPiece);
  auto got = stream_.read({buffer_.data() + had, kPiece}, deadline);
  buffer_.resize(had + (got.ok() ? got.value() : 0));
  if (!got.ok()) {
    return got.error();
  }
  if (got.value() == 0) {
    return Error{Code::kGone, 0, "the client has left", {}};
  }
  return {};
}

Status ServerConnection::next() {
  answered_ = false;
  if (buffer_.empty()) {
    if (Status came = fill(Clock::now() + patience_.idle); !came.ok()) {
      return Error{Code::kGone, 0, "the client has nothing to say", {}};
    }
  }
  const Deadline deadline = Clock::now() + patience_.head;
  bool look = true;
  for (;;) {
    if (look) {
      auto parsed = parse_request_head(
          {reinterpret_cast<const std::uint8_t*>(buffer_.data()), buffer_.size()});
      if (parsed.is_refused()) {
        const bool method = buffer_.starts_with("TRACE ") || buffer_.starts_with("TRACK ");
        const Code code = buffer_.size() > kLargestRequestHead ? Code::kResource
                          : method                             ? Code::kUnsupported
                                                               : Code::kInvalid;
        return Error{code, 0, std::string(parsed.reason), {}};
      }
      if (parsed.parsed()) {
        head_ = std::move(parsed.value);
        buffer_.erase(0, parsed.used);
        break;
      }
    }
    const std::size_t had = buffer_.size();
    CARREL_TRY(fill(deadline));
    // Only an end, or too much, makes another look worth it.
    look = buffer_.find("\r\n\r\n", had < 3 ? 0 : had - 3) != std::string::npos ||
           buffer_.size() > kLargestRequestHead;
  }
  chunks_ = ChunkedBody();
  chunk_.clear();
  left_ = head_.body.length;
  body_over_ = head_.body.kind == BodyFraming::Kind::kNone ||
               (head_.body.kind == BodyFraming::Kind::kLength && left_ == 0);
  continue_due_ = head_.expects_continue && !body_over_;
  keeps_open_ = head_.keeps_open;
  return {};
}

Result<std::size_t> ServerConnection::take(std::span<char> into) {
  if (buffer_.empty()) {
    CARREL_TRY(fill(Clock::now() + patience_.body));
  }
  const std::size_t size = std::min(into.size(), buffer_.size());
  std::memcpy(into.data(), buffer_.data(), size);
  buffer_.erase(0, size);
  return size;
}

Result<std::size_t> ServerConnection::read_chunk(std::span<char> into) {
  while (chunk_.empty() && !body_over_) {
    if (buffer_.empty()) {
      CARREL_TRY(fill(Clock::now() + patience_.body));
    }
    const Bytes came{reinterpret_cast<const std::uint8_t*>(buffer_.data()), buffer_.size()};
    const auto end = chunks_.feed(came, [&](Bytes data) { chunk_ += as_text(data); });
    if (end.is_refused()) {
      keeps_open_ = false;
      return Error{Code::kInvalid, 0, std::string(end.reason), {}};
    }
    body_over_ = end.parsed();
    buffer_.erase(0, end.parsed() ? end.used : buffer_.size());
  }
  const std::size_t size = std::min(into.size(), chunk_.size());
  std::memcpy(into.data(), chunk_.data(), size);
  chunk_.erase(0, size);
  return size;
}

Result<std::size_t> ServerConnection::read_body(std::span<char> into) {
  if (continue_due_) {
    continue_due_ = false;
    CARREL_TRY(stream_.write("HTTP/1.1 100 Continue\r\n\r\n", Clock::now() + patience_.write));
  }
  if (head_.body.kind == BodyFraming::Kind::kChunked) {
    return read_chunk(into);
  }
  if (body_over_) {
    return std::size_t{0};
  }
  CARREL_ASSIGN(
      const std::size_t size,
      take(into.first(static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), left_)))));
  left_ -= size;
  body_over_ = left_ == 0;
  return size;
}

Result<std::string> ServerConnection::whole_body(std::size_t limit) {
  const Error too_large{
      Code::kResource, 0, "the body is larger than " + std::to_string(limit) + " bytes", {}};
  if (head_.body.length > limit) {
    return too_large;
  }
  std::string body;
  const auto piece = std::make_unique<char[]>(kPiece);
  for (;;) {
    CARREL_ASSIGN(const std::size_t size, read_body({piece.get(), kPiece}));
    if (size == 0) {
      return body;
    }
    if (body.size() + size > limit) {
      return too_large;
    }
    body.append(piece.get(), size);
  }
}

void ServerConnection::skip_body() {
  if (continue_due_) {  // it was never sent, or comes without having been asked for
    keeps_open_ = false;
    return;
  }
  std::array<char, 4096> piece{};
  std::size_t skipped = 0;
  while (!body_over_ && keeps_open_) {
    const auto size = read_body(piece);
    skipped += size.ok() ? size.value() : 0;
    keeps_open_ = size.ok() && skipped <= kMostSkipped;
  }
}

Status ServerConnection::write(std::string_view bytes) {
  Status written = stream_.write(bytes, Clock::now() + patience_.write);
  keeps_open_ = keeps_open_ && written.ok();
  return written;
}

std::string ServerConnection::head_text(int status, const std::vector<Header>& headers) const {
  std::string text = "HTTP/1.1 " + std::to_string(status) + " ";
  text += status_words(status);
  text += "\r\ndate: " + date_now() + "\r\n";
  for (const Header& header : headers) {
    if (is_token(header.name) && is_value(header.value)) {
      text += header.name + ": " + header.value + "\r\n";
    }
  }
  return text;
}

Status ServerConnection::answer(const Answer& answer) {
  skip_body();
  answered_ = true;
  std::string text = head_text(answer.status, answer.headers);
  if (!has_no_body(answer.status)) {
    text += "content-length: " + std::to_string(answer.body.size()) + "\r\n";
  }
  text += keeps_open_ ? "\r\n" : "connection: close\r\n\r\n";
  if (head_.method != "HEAD" && !has_no_body(answer.status)) {
    text += answer.body;
  }
  return write(text);
}

Status ServerConnection::answer_and_close(const Answer& last) {
  head_ = RequestHead();
  body_over_ = true;
  continue_due_ = false;
  keeps_open_ = false;
  return answer(last);
}

Status ServerConnection::begin(int status, const std::vector<Header>& headers) {
  skip_body();
  answered_ = true;
  chunked_ = head_.minor_version == 1;
  keeps_open_ = keeps_open_ && chunked_;
  std::string text = head_text(status, headers);
  text += chunked_ ? "transfer-encoding: chunked\r\n" : "";
  return write(text + (keeps_open_ ? "\r\n" : "connection: close\r\n\r\n"));
}

Status ServerConnection::send(std::string_view piece) {
  if (piece.empty() || head_.method == "HEAD") {
    return {};
  }
  if (!chunked_) {
    return write(piece);
  }
  std::array<char, 24> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
  std::string text(size.data());
  text.append(piece).append("\r\n");
  return write(text);
}

Status ServerConnection::finish() {
  return chunked_ && head_.method != "HEAD" ? write("0\r\n\r\n") : Status();
}

Result<std::string> ServerConnection::upgrade(const std::vector<Header>& headers) {
  answered_ = true;
  CARREL_TRY(write(head_text(101, headers) + "\r\n"));
  keeps_open_ = false;
  return std::move(buffer_);
}

}  // namespace carrel::http
