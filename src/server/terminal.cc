#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string>

#include "http/websocket.h"
#include "manager/commands.h"
#include "sandbox/result_json.h"
#include "server/handlers.h"
#include "server/service.h"

// A command's input and output over a WebSocket: what a terminal in a browser or a program needs.
// Binary messages are bytes of the command's own; texts are JSON about it. A client that comes back
// says how far it had read.
namespace carrel::server {
namespace {

using http::WebSocket;
using Kind = http::WebSocket::Message::Kind;
using manager::Follower;

constexpr int kTerminalTickMs = 250;
constexpr std::size_t kInputPiece = 32U << 10;
constexpr int kMostAtOnce = 32;
constexpr std::chrono::seconds kFirstWord{2};

class Terminal {
 public:
  Terminal(Request& request, WebSocket& socket, Follower& follower)
      : request_(request), socket_(socket), follower_(follower) {}

  // Until the command ends, the client leaves or breaks the rules, or the daemon stops.
  void run() {
    while (!over_) {
      if (request_.service.stopping) {
        socket_.close(WebSocket::kGoingAway, "the daemon stops");
        return;
      }
      hear_command();
      give_input();
      // A guest says at once whether there is an input.
      if (!pending_.empty() && !given_.has_value() && http::Clock::now() - began_ > kFirstWord) {
        fail(Error{Code::kConflict, 0, "the command takes no input", {}});
      }
      if (!over_ && has_room()) {
        hear_client();
      }
      if (!over_) {
        wait();
      }
    }
  }

 private:
  [[nodiscard]] bool has_room() const { return pending_.empty(); }

  void wait() const {
    std::array<pollfd, 2> waits{
        {{follower_.fd(), POLLIN, 0}, {has_room() ? request_.socket : -1, POLLIN, 0}}};
    const bool more = has_room() && request_.connection.stream().has_pending();
    ::poll(waits.data(), waits.size(), more ? 0 : kTerminalTickMs);
  }

  void fail(const Error& error) {
    over_ = true;
    socket_.close(WebSocket::kFailed, error.message);
  }
  void check(const Status& done) {
    if (!done.ok()) {
      fail(done.error());
    }
  }

  void hear_command() {
    // Not for ever: a flood of output must not keep the client's Ctrl-C from being heard.
    for (int i = 0; i < kMostAtOnce && !over_; ++i) {
      auto news = follower_.next(0);
      if (!news.ok()) {
        if (news.error().code != Code::kTimeout) {
          fail(request_.service.manager->explain_end(request_.id(), news.error()));
        }
        return;
      }
      switch (news->kind) {
        case Follower::News::Kind::kOutput:
          tell_place(*news);
          check(socket_.send(Kind::kBinary, news->data));
          break;
        case Follower::News::Kind::kInputTaken:
          taken_ = news->taken;
          given_ = given_.has_value() ? given_ : taken_;
          break;
        case Follower::News::Kind::kEnd:
          check(socket_.send(Kind::kText, "{\"event\":\"exit\",\"result\":" +
                                              sandbox::to_json(news->result) + "}"));
          socket_.close(WebSocket::kNormal, "the command has ended");
          over_ = true;
          break;
      }
    }
  }

  // Where the bytes that follow are in the output, where that does not follow from those before.
  void tell_place(const Follower::News& news) {
    if (news.offset != next_ || !told_) {
      told_ = true;
      check(socket_.send(Kind::kText,
                         "{\"event\":\"offset\",\"offset\":" + std::to_string(news.offset) + "}"));
    }
    next_ = news.offset + news.data.size();
  }

  // As much as the command's window has room for.
  void give_input() {
    while (!over_ && !pending_.empty() && given_.has_value() &&
           *given_ + kInputPiece <= taken_ + protocol::kInputWindow) {
      const std::string piece = pending_.substr(0, kInputPiece);
      pending_.erase(0, piece.size());
      *given_ += piece.size();
      check(follower_.give_input(piece));
    }
  }

  void hear_client() {
    while (!over_ && has_room()) {
      auto message = socket_.next(http::Clock::now());
      if (!message.ok()) {
        over_ = message.error().code != Code::kTimeout;
        return;
      }
      if (message->kind == Kind::kBinary) {
        pending_ = std::move(message->data);
        give_input();
      } else {
        check(obey(message->data));
      }
    }
  }

  // {"resize": {"rows": 24, "columns": 80}} or {"close_input": true}
  Status obey(const std::string& text) {
    CARREL_ASSIGN(const Json wish, parse_json(text));
    Fields fields(wish);
    const Json* size = fields.any("resize");
    const bool close = fields.flag("close_input").value_or(false);
    CARREL_TRY(fields.finish());
    if (size != nullptr) {
      Fields parts(*size);
      const auto rows = parts.number("rows", 1000);
      const auto columns = parts.number("columns", 1000);
      CARREL_TRY(parts.finish());
      CARREL_TRY(follower_.resize(static_cast<std::uint16_t>(rows.value_or(24)),
                                  static_cast<std::uint16_t>(columns.value_or(80))));
    }
    return close ? follower_.close_input() : Status();
  }

  Request& request_;
  WebSocket& socket_;
  Follower& follower_;
  http::Deadline began_ = http::Clock::now();
  bool over_ = false;
  bool told_ = false;
  std::uint64_t next_ = 0;              // of the output
  std::string pending_;                 // of the input, not given yet
  std::optional<std::uint64_t> given_;  // since the command's start; known once it was told
  std::uint64_t taken_ = 0;
};

}  // namespace

Status open_terminal(Request& request) {
  CARREL_ASSIGN(const std::vector<http::Header> headers,
                http::accept_websocket(request.connection.head()));
  const std::string& text = request.arguments[1];
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{Code::kNotFound, 0, "the sandbox knows no command " + text, {}};
  }
  CARREL_ASSIGN(const std::uint64_t offset,
                number_in(request.query, "offset", 0, std::numeric_limits<std::int64_t>::max()));
  CARREL_ASSIGN(manager::Manager::Visit visit,
                request.service.manager->visit(request.caller, request.id()));
  CARREL_TRY(manager::look_at_command(visit.stream(), id));
  CARREL_ASSIGN(Follower follower, Follower::begin(visit.stream(), id, {offset, offset}));
  CARREL_ASSIGN(std::string begun, request.connection.upgrade(headers));
  WebSocket socket(request.connection.stream(), std::move(begun));
  Terminal(request, socket, follower).run();
  return {};
}

}  // namespace carrel::server
