#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/ascii.h"
#include "egress/passage.h"

// What servers answer to requests that were read.
namespace carrel::egress {

namespace {

constexpr std::size_t kAnswerReadAtOnce = 64U << 10;
constexpr int kSwitchingProtocols = 101;

bool is_encoded(const http::ResponseHead& head) {
  const std::string* coding = head.find("content-encoding");
  return coding != nullptr && lower(*coding) != "identity";
}

// One part of a chunked body.
std::string chunk_of(std::string_view data) {
  std::array<char, 16> size{};
  const auto end = std::to_chars(size.data(), size.data() + size.size(), data.size(), 16);
  std::string text(size.data(), end.ptr);
  return text.append("\r\n").append(data).append("\r\n");
}

}  // namespace

Task<std::ptrdiff_t> Passage::receive(Exchange& exchange) {
  std::vector<std::uint8_t>& came = exchange.came;
  const std::size_t before = came.size();
  came.resize(before + kAnswerReadAtOnce);
  auto n = co_await exchange.server->read_some(std::span(came).subspan(before), kNever);
  came.resize(before + static_cast<std::size_t>(std::max<std::ptrdiff_t>(n, 0)));
  if (n > 0) {
    carried_.in += static_cast<std::uint64_t>(n);
    if (!room_->spend_in(static_cast<std::uint64_t>(n))) {
      n = -EDQUOT;
    }
  }
  co_return n;
}

Task<void> Passage::carry_answers(Exchange& exchange) {
  Went went = Went::kOn;
  while (went == Went::kOn) {
    went = co_await pass_answer(exchange);
  }
  if (exchange.refused) {
    exchange.settle(Exchange::State::kEnded);
    co_return;
  }
  if (went == Went::kBroken) {
    // Nobody is to take what came for everything.
    client_.reset_on_close();
    client_.shut();
  }
  exchange.settle(Exchange::State::kEnded);
  if (went == Went::kEnded) {
    co_await spoken_->end();
  }
}

Task<Passage::Went> Passage::pass_answer(Exchange& exchange) {
  auto head = http::parse_response_head(exchange.came);
  while (head.needs_more()) {
    const auto n = co_await receive(exchange);
    if (n <= 0) {
      const bool between = exchange.came.empty() && exchange.state != Exchange::State::kAsked;
      co_return between ? Went::kEnded : Went::kBroken;
    }
    head = http::parse_response_head(exchange.came);
  }
  if (head.is_refused() || exchange.state != Exchange::State::kAsked) {
    note("answer", denied(head.is_refused() ? std::string(head.reason)
                                            : "the server answers what nobody asked"));
    co_return Went::kBroken;
  }
  const int status = head.value.status;
  const bool switches = status == kSwitchingProtocols;
  const bool interim = status / 100 == 1 && !switches;
  auto body = http::BodyDecoder::after(head.value, exchange.method);
  if (!body.ok() || (switches && !exchange.upgrades)) {
    note("answer", denied("the answer cannot be read safely"));
    co_return Went::kBroken;
  }
  if (!exchange.scrubber.idle() && is_encoded(head.value)) {
    note("answer", denied("the answer is compressed, so that no secret in it could be covered"));
    co_return Went::kBroken;
  }
  std::string text = exchange.scrubber.feed(as_text(exchange.came).substr(0, head.used));
  text += exchange.scrubber.finish();
  exchange.came.erase(exchange.came.begin(),
                      exchange.came.begin() + static_cast<std::ptrdiff_t>(head.used));
  const bool told = co_await spoken_->write_whole(bytes_of(text), kNever);
  if (!told) {
    co_return Went::kBroken;
  }
  if (interim) {
    co_return Went::kOn;
  }
  if (switches) {
    exchange.settle(Exchange::State::kTunnel);
    const Went rest = co_await pass_the_rest(exchange);
    co_return rest;
  }
  const Went passed = co_await pass_body(exchange, std::move(body.value()));
  if (passed == Went::kOn) {
    exchange.settle(Exchange::State::kIdle);
  }
  co_return passed;
}

Task<Passage::Went> Passage::pass_body(Exchange& exchange, http::BodyDecoder body) {
  const bool chunked = !body.done() && !body.until_close() && !body.length().has_value();
  const bool until_close = body.until_close();
  while (!body.done()) {
    if (exchange.came.empty()) {
      const auto n = co_await receive(exchange);
      if (n < 0 || (n == 0 && !body.close().ok())) {
        co_return Went::kBroken;
      }
    }
    std::string data;
    const auto used = body.feed(as_text(exchange.came), [&](std::string_view piece) {
      data += piece;
      return Status();
    });
    if (!used.ok()) {
      note("answer", denied("the answer cannot be read safely: " + used.error().message));
      co_return Went::kBroken;
    }
    exchange.came.erase(exchange.came.begin(),
                        exchange.came.begin() + static_cast<std::ptrdiff_t>(used.value()));
    data = exchange.scrubber.feed(data);
    if (body.done()) {
      data += exchange.scrubber.finish();
    }
    if (chunked) {
      data = data.empty() ? data : chunk_of(data);
      data += body.done() ? "0\r\n\r\n" : "";
    }
    const bool told = co_await spoken_->write_whole(bytes_of(data), kNever);
    if (!told) {
      co_return Went::kBroken;
    }
  }
  co_return until_close ? Went::kEnded : Went::kOn;
}

Task<Passage::Went> Passage::pass_the_rest(Exchange& exchange) {
  for (;;) {
    std::string data = exchange.scrubber.feed(as_text(exchange.came));
    exchange.came.clear();
    const bool told = co_await spoken_->write_whole(bytes_of(data), kNever);
    if (!told) {
      co_return Went::kBroken;
    }
    const auto n = co_await receive(exchange);
    if (n < 0) {
      co_return Went::kBroken;
    }
    if (n == 0) {
      data = exchange.scrubber.finish();
      co_await spoken_->write_whole(bytes_of(data), kNever);
      co_return Went::kEnded;
    }
  }
}

}  // namespace carrel::egress
