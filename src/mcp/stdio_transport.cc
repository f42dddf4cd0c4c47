#include "mcp/stdio_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "mcp/flood.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostNoise = 64;
constexpr std::size_t kMostUnsent = 2 * kLargestMessage;
constexpr std::size_t kKeptErrors = 4096;
constexpr std::size_t kPiece = 64U << 10;
constexpr milliseconds kToEnd{500};  // from the end of its output to its own

bool would_wait(int error_number) { return error_number == EAGAIN || error_number == EINTR; }

}  // namespace

Status StdioTransport::queue(const Message& message) {
  const std::string text = to_text(message);
  if (outgoing_.size() + text.size() > kMostUnsent) {
    return Error{Code::kResource,
                 0,
                 "more is to be sent to the MCP server than it takes (" +
                     std::to_string(outgoing_.size() + text.size()) + " bytes)",
                 {}};
  }
  outgoing_ += text;
  outgoing_ += '\n';
  return {};
}

// As much as it takes now. That it takes nothing any more is told by the end of its output.
Status StdioTransport::flush() {
  std::size_t sent = 0;
  while (sent < outgoing_.size()) {
    const ssize_t size = ::send(process_->input(), outgoing_.data() + sent, outgoing_.size() - sent,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size >= 0) {
      sent += static_cast<std::size_t>(size);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      sent = outgoing_.size();
    } else if (would_wait(errno)) {
      break;
    } else {
      return system_error("write to the MCP server");
    }
  }
  outgoing_.erase(0, sent);
  return {};
}

Result<StdioTransport::Flow> StdioTransport::fill() {
  piece_.resize(kPiece);
  const ssize_t size = ::read(process_->output(), piece_.data(), piece_.size());
  if (size < 0) {
    return would_wait(errno) ? Result<Flow>(Flow::kMore) : system_error("read from the MCP server");
  }
  incoming_.append(piece_.data(), static_cast<std::size_t>(size));
  taken_bytes_ += static_cast<std::size_t>(size);
  return size == 0 ? Flow::kEnded : Flow::kMore;
}

void StdioTransport::hear_errors() {
  if (!hears_errors_) {
    return;
  }
  piece_.resize(kPiece);
  const ssize_t size = ::read(process_->errors(), piece_.data(), piece_.size());
  if (size > 0) {
    errors_.append(piece_.data(), static_cast<std::size_t>(size));
    if (errors_.size() > kKeptErrors) {
      errors_.erase(0, errors_.size() - kKeptErrors);
    }
  }
  hears_errors_ = size > 0 || (size < 0 && would_wait(errno));
}

Result<StdioTransport::Line> StdioTransport::next_line(std::string& line) {
  const std::size_t end = incoming_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = incoming_.size();
    if (searched_ > kLargestMessage) {
      return Error{
          Code::kResource,
          0,
          "the MCP server sends a line of more than " + std::to_string(kLargestMessage) + " bytes",
          {}};
    }
    return Line::kNone;
  }
  line = incoming_.substr(0, end);
  incoming_.erase(0, end + 1);
  searched_ = 0;
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  return Line::kWhole;
}

Status StdioTransport::pass_over(std::string_view line) {
  if (line.empty()) {
    return {};
  }
  if (noise_.empty()) {
    noise_ = policy::quote(line.substr(0, 200));
  }
  if (++noises_ <= kMostNoise) {
    return {};
  }
  return Error{Code::kDenied, 0,
               "the MCP server prints what is no message on its standard output, first " + noise_,
               "a server prints what is for people on its standard error"};
}

Result<Transport::Next> StdioTransport::take_lines(const Take& take) {
  std::string line;
  for (;;) {
    CARREL_ASSIGN(const Line there, next_line(line));
    if (there == Line::kNone) {
      return Next::kWait;
    }
    CARREL_TRY(check_flood(taken_bytes_, ++taken_messages_));
    auto message = parse_message(line);
    if (!message.ok()) {
      CARREL_TRY(pass_over(line));
      continue;
    }
    CARREL_ASSIGN(const Next next, take(std::move(message.value())));
    if (next == Next::kDone) {
      return Next::kDone;
    }
  }
}

Error StdioTransport::ended() {
  std::string how = process_->wait_for_end(kToEnd);
  hear_errors();
  return Error{
      Code::kUnavailable, 0, "the MCP server ended" + (how.empty() ? "" : " with " + how), {}};
}

// Returns when there is something to do.
Status StdioTransport::wait(const Patience& patience) {
  std::array<pollfd, 4> waits{{{process_->output(), POLLIN, 0},
                               {hears_errors_ ? process_->errors() : -1, POLLIN, 0},
                               {outgoing_.empty() ? -1 : process_->input(), POLLOUT, 0},
                               {patience.cancel, POLLIN, 0}}};
  const auto left = std::chrono::ceil<milliseconds>(patience.deadline - http::Clock::now()).count();
  if (left <= 0) {
    return Error{Code::kTimeout, 0, "the MCP server took too long to answer", {}};
  }
  const int ready =
      ::poll(waits.data(), waits.size(), static_cast<int>(std::min<std::int64_t>(left, 1 << 30)));
  if (ready < 0 && errno != EINTR) {
    return system_error("wait for the MCP server");
  }
  if (ready > 0 && waits[3].revents != 0) {
    return Error{Code::kGone, 0, "it was cancelled", {}};
  }
  if (ready > 0 && waits[1].revents != 0) {
    hear_errors();
  }
  return {};
}

Status StdioTransport::exchange(const Outgoing& request, const Take& take,
                                const Patience& patience) {
  taken_bytes_ = 0;
  taken_messages_ = 0;
  CARREL_TRY(queue(request.message));
  for (;;) {
    CARREL_TRY(flush());
    CARREL_ASSIGN(const Next next, take_lines(take));
    if (next == Next::kDone) {
      return {};
    }
    CARREL_TRY(wait(patience));
    CARREL_ASSIGN(const Flow flow, fill());
    if (flow == Flow::kEnded) {
      CARREL_ASSIGN(const Next last, take_lines(take));
      return last == Next::kDone ? Status() : Status(ended());
    }
  }
}

Status StdioTransport::send(const Outgoing& message, const Patience&) {
  CARREL_TRY(queue(message.message));
  return flush();
}

std::string StdioTransport::last_words() {
  hear_errors();
  const std::size_t end = errors_.find_last_not_of(" \r\n\t");
  std::string_view text = std::string_view(errors_).substr(0, end + 1);
  if (text.size() > 600) {
    text.remove_prefix(text.size() - 600);
  }
  if (!text.empty()) {
    return policy::printable(text, 700);
  }
  return noise_;
}

}  // namespace carrel::mcp
