#include "server/preview.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "http/tcp.h"
#include "sandbox/port.h"
#include "server/service.h"
#include "storage/box.h"

namespace carrel::server {
namespace {

using http::Clock;
using http::Header;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kConnectPatience = 5s;
constexpr std::chrono::milliseconds kWritePatience = 30s;
constexpr int kTickMs = 250;
constexpr std::size_t kPiece = 16U << 10;
constexpr std::string_view kPathStart = "/v1/sandboxes/";
constexpr std::string_view kHostEnd = ".localhost";
constexpr std::size_t kIdSize = 36;

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || text.front() == '0' || error != std::errc() ||
      end != text.data() + text.size()) {
    return std::nullopt;
  }
  return port;
}

std::optional<Preview> make(Preview::By by, std::string_view id, std::string_view port,
                            std::string path) {
  const std::optional<std::uint16_t> number = parse_port(port);
  if (!storage::is_id(id) || !number.has_value()) {
    return std::nullopt;
  }
  return Preview{by, std::string(id), *number, std::move(path)};
}

std::optional<Preview> by_host(const http::RequestHead& head) {
  std::string_view host = head.host.text();
  if (!host.ends_with(kHostEnd)) {
    return std::nullopt;
  }
  host.remove_suffix(kHostEnd.size());
  const std::size_t dash = host.find('-');
  if (dash == std::string_view::npos || host.size() != dash + 1 + kIdSize) {
    return std::nullopt;
  }
  return make(Preview::By::kHost, host.substr(dash + 1), host.substr(0, dash), head.path);
}

std::optional<Preview> by_headers(const http::RequestHead& head) {
  if (http::count_headers(head.headers, "carrel-sandbox") != 1 ||
      http::count_headers(head.headers, "carrel-port") != 1) {
    return std::nullopt;
  }
  return make(Preview::By::kHeaders, *head.find("carrel-sandbox"), *head.find("carrel-port"),
              head.path);
}

std::optional<Preview> by_path(const http::RequestHead& head) {
  constexpr std::string_view kPorts = "/ports/";
  std::string_view rest = head.path;
  if (!rest.starts_with(kPathStart)) {
    return std::nullopt;
  }
  rest.remove_prefix(kPathStart.size());
  const std::string_view id = rest.substr(0, kIdSize);
  rest.remove_prefix(id.size());
  if (!rest.starts_with(kPorts)) {
    return std::nullopt;
  }
  rest.remove_prefix(kPorts.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) {
    return std::nullopt;
  }
  return make(Preview::By::kPath, id, rest.substr(0, slash), std::string(rest.substr(slash)));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the server inside gets to read. CRITICAL: never the client's token.
http::RequestHead inner_head(const http::RequestHead& outer, const Preview& preview) {
  http::RequestHead head = outer;
  head.path = preview.path;
  head.form = http::RequestHead::Form::kOrigin;
  head.minor_version = 1;
  head.keeps_open = outer.upgrades;
  std::erase_if(head.headers, [&](const Header& header) {
    const bool token = header.name == "authorization" &&
                       (preview.by != Preview::By::kHost || header.value.starts_with("Bearer "));
    return token || header.name.starts_with("carrel-") || header.name.starts_with("x-forwarded-") ||
           is_one_of(header.name, {"expect", "forwarded", "proxy-authorization"});
  });
  head.headers.push_back({"x-forwarded-host", policy::endpoint_text(outer.host, outer.port)});
  head.headers.push_back({"x-forwarded-proto", "http"});
  if (preview.by == Preview::By::kPath) {
    head.headers.push_back(
        {"x-forwarded-prefix", outer.path.substr(0, outer.path.size() - preview.path.size())});
  }
  head.host = policy::canonical_host("localhost").value();
  head.port = preview.port;
  return head;
}

// What the client gets to read. Under this server's own name nothing of a sandbox may set a cookie
// or act with the rights of this origin.
std::vector<Header> outer_headers(const http::ResponseHead& inner, const Preview& preview) {
  std::vector<Header> headers;
  for (const Header& header : inner.headers) {
    if (is_one_of(header.name, {"connection", "keep-alive", "transfer-encoding", "content-length",
                                "upgrade", "te", "trailer", "date", "proxy-authenticate",
                                "strict-transport-security", "alt-svc", "clear-site-data"})) {
      continue;
    }
    const bool cookie = header.name == "set-cookie";
    if (cookie && (preview.by != Preview::By::kHost ||
                   lower(header.value).find("domain") != std::string::npos)) {
      continue;
    }
    if (preview.by != Preview::By::kHost && header.name == "content-security-policy") {
      continue;
    }
    headers.push_back(header);
  }
  if (preview.by != Preview::By::kHost) {
    headers.push_back(
        {"content-security-policy", "sandbox allow-scripts allow-forms allow-popups"});
    headers.push_back({"x-content-type-options", "nosniff"});
  }
  return headers;
}

class Exchange {
 public:
  Exchange(Request& request, const Preview& preview, UniqueFd server)
      : request_(request),
        preview_(preview),
        server_fd_(server.get()),
        server_(std::move(server)) {}

  Status run() {
    CARREL_ASSIGN(watch_, watch_client(request_.socket));
    const http::RequestHead head = inner_head(request_.connection.head(), preview_);
    CARREL_TRY(write(http::write_request_head(head)));
    CARREL_TRY(send_body(head));
    CARREL_ASSIGN(const http::ResponseHead answer, read_head());
    if (answer.status == 101) {
      return head.upgrades ? relay(answer) : Status(bad_answer());
    }
    return pass_on(answer, head.method);
  }

 private:
  static Error bad_answer() {
    return {Code::kUnavailable, 0, "the server in the sandbox does not answer as it should", {}};
  }

  Status write(std::string_view bytes) {
    return server_.write(bytes, Clock::now() + kWritePatience);
  }

  Status send_body(const http::RequestHead& head) {
    const bool chunked = head.body.kind == http::BodyFraming::Kind::kChunked;
    std::vector<char> piece(kPiece);
    for (;;) {
      CARREL_ASSIGN(const std::size_t size, request_.connection.read_body(piece));
      if (size == 0) {
        return chunked ? write("0\r\n\r\n") : Status();
      }
      const std::string_view bytes(piece.data(), size);
      if (!chunked) {
        CARREL_TRY(write(bytes));
        continue;
      }
      std::array<char, 24> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16);
      CARREL_TRY(write(std::string(digits.data(), end.ptr) + "\r\n" + std::string(bytes) + "\r\n"));
    }
  }

  // Bytes of the server's, as soon as there are some; 0: it has ended.
  Result<std::size_t> read(std::span<char> into) {
    for (;;) {
      std::array<pollfd, 2> waits{{{server_fd_, POLLIN, 0}, {watch_.get(), POLLIN, 0}}};
      ::poll(waits.data(), waits.size(), kTickMs);
      if (waits[0].revents != 0) {
        auto size = server_.read(into, Clock::now() + 1s);
        return size.ok() ? size : Result<std::size_t>(std::size_t{0});
      }
      if (waits[1].revents != 0 || request_.service.stopping) {
        return Error{Code::kGone, 0, "the client has left", {}};
      }
    }
  }

  Result<http::ResponseHead> read_head() {
    std::vector<char> piece(kPiece);
    for (;;) {
      auto head = http::parse_response_head(
          {reinterpret_cast<const std::uint8_t*>(buffer_.data()), buffer_.size()});
      if (head.is_refused()) {
        return bad_answer();
      }
      if (head.parsed()) {
        buffer_.erase(0, head.used);
        if (head.value.status >= 200 || head.value.status == 101) {
          return std::move(head.value);
        }
        continue;  // 100 and 103 are for nobody
      }
      CARREL_ASSIGN(const std::size_t size, read(piece));
      if (size == 0) {
        return bad_answer();
      }
      buffer_.append(piece.data(), size);
    }
  }

  Status pass_on(const http::ResponseHead& head, const std::string& method) {
    auto body =
        http::BodyDecoder::after(head, method == "HEAD" ? http::Method::kHead : http::Method::kGet);
    if (!body.ok()) {
      return bad_answer();
    }
    http::ServerConnection& client = request_.connection;
    const std::vector<Header> headers = outer_headers(head, preview_);
    if (body->done()) {
      return client.answer({head.status, headers, {}});
    }
    CARREL_TRY(client.begin(head.status, headers));
    std::vector<char> piece(kPiece);
    for (;;) {
      CARREL_TRY(body->feed(buffer_, [&](std::string_view data) { return client.send(data); }));
      buffer_.clear();
      if (body->done()) {
        return client.finish();
      }
      CARREL_ASSIGN(const std::size_t size, read(piece));
      if (size == 0) {
        CARREL_TRY(body->close());
        return client.finish();
      }
      buffer_.assign(piece.data(), size);
    }
  }

  // A WebSocket: bytes both ways, until one side ends it.
  Status relay(const http::ResponseHead& head) {
    std::vector<Header> headers = outer_headers(head, preview_);
    headers.push_back({"connection", "upgrade"});
    headers.push_back({"upgrade", "websocket"});
    CARREL_ASSIGN(std::string early, request_.connection.upgrade(headers));
    http::Stream& client = request_.connection.stream();
    CARREL_TRY(client.write(buffer_, Clock::now() + kWritePatience));
    CARREL_TRY(write(early));
    std::vector<char> piece(kPiece);
    while (!request_.service.stopping) {
      std::array<pollfd, 2> waits{{{server_fd_, POLLIN, 0}, {request_.socket, POLLIN, 0}}};
      const bool more = client.has_pending();
      ::poll(waits.data(), waits.size(), more ? 0 : kTickMs);
      if (waits[0].revents != 0) {
        auto size = server_.read(piece, Clock::now() + 1s);
        if (!size.ok() || size.value() == 0) {
          return {};
        }
        CARREL_TRY(client.write({piece.data(), size.value()}, Clock::now() + kWritePatience));
      }
      if (waits[1].revents != 0 || more) {
        auto size = client.read(piece, Clock::now() + 1s);
        if (!size.ok() || size.value() == 0) {
          return {};
        }
        CARREL_TRY(write({piece.data(), size.value()}));
      }
    }
    return {};
  }

  Request& request_;
  const Preview& preview_;
  int server_fd_;
  http::TcpStream server_;
  UniqueFd watch_;
  std::string buffer_;  // of the answer, came and not used yet
};

}  // namespace

std::optional<Preview> find_preview(const http::RequestHead& head) {
  if (head.form != http::RequestHead::Form::kOrigin) {
    return std::nullopt;
  }
  auto found = by_host(head);
  if (!found.has_value()) {
    found = by_headers(head);
  }
  return found.has_value() ? found : by_path(head);
}

std::string preview_url(std::string_view scheme, const std::string& id, std::uint16_t port,
                        std::uint16_t listener) {
  return std::string(scheme) + "://" + std::to_string(port) + "-" + id + std::string(kHostEnd) +
         ":" + std::to_string(listener) + "/";
}

Status serve_preview(Request& request, const Preview& preview) {
  CARREL_ASSIGN(manager::Manager::Visit visit,
                request.service.manager->visit(request.caller, preview.id));
  sandbox::Port port(std::move(visit.stream()), preview.port, [&visit] { return visit.another(); });
  auto server = port.connect(kConnectPatience);
  if (!server.ok()) {
    return request.service.manager->explain_end(preview.id, std::move(server.error()));
  }
  return Exchange(request, preview, std::move(server.value())).run();
}

}  // namespace carrel::server
