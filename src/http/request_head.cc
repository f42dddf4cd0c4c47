#include "http/request_head.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/ascii.h"
#include "http/fields.h"
#include "policy/given.h"

namespace carrel::http {
namespace {

using Refusable = std::string_view;  // why it is refused; empty: it is not

constexpr std::size_t kLongestMethod = 32;
constexpr std::uint64_t kLargestBody = 1ULL << 50U;
constexpr std::uint16_t kHttpPort = 80;

struct Authority {
  policy::Host host;
  std::uint16_t port = 0;  // 0: none was given
};

std::optional<std::uint16_t> read_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port, 10);
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '0' ||
      text.front() == '-') {
    return std::nullopt;
  }
  return port;
}

// "host", "host:port" or "[address]:port".
std::optional<Authority> read_authority(std::string_view text) {
  Authority authority;
  std::string_view name = text;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    name = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (name.find(':') == std::string_view::npos) {
      return std::nullopt;
    }
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    name = text.substr(0, colon);
    rest = text.substr(colon);
  }
  auto host = policy::canonical_host(name);
  if (!host.ok()) {
    return std::nullopt;
  }
  authority.host = std::move(host.value());
  if (!rest.empty()) {
    const auto port = rest.size() > 1 && rest[0] == ':' ? read_port(rest.substr(1)) : std::nullopt;
    if (!port.has_value()) {
      return std::nullopt;
    }
    authority.port = *port;
  }
  return authority;
}

void set_path(RequestHead& head, std::string_view target) {
  const std::size_t question = target.find('?');
  head.path = target.substr(0, question);
  head.query = question == std::string_view::npos ? "" : target.substr(question);
}

// "http://host:port/path?query"
Refusable read_absolute(std::string_view target, RequestHead& head) {
  constexpr std::string_view kScheme = "http://";
  if (lower(target.substr(0, kScheme.size())) != kScheme) {
    return "the target of the request is neither a path nor an http URL";
  }
  target.remove_prefix(kScheme.size());
  const std::size_t end = std::min(target.find_first_of("/?"), target.size());
  const auto authority = read_authority(target.substr(0, end));
  if (!authority.has_value()) {
    return "the host in the target of the request is not one";
  }
  head.form = RequestHead::Form::kAbsolute;
  head.host = authority->host;
  head.port = authority->port;
  set_path(head, target.substr(end));
  head.path = head.path.empty() ? "/" : head.path;
  return {};
}

Refusable read_target(std::string_view target, RequestHead& head) {
  if (target.empty() || !std::all_of(target.begin(), target.end(),
                                     [](char c) { return c > ' ' && c < 0x7f && c != '#'; })) {
    return "the target of the request has characters that none has";
  }
  if (head.method == "CONNECT") {
    const auto authority = read_authority(target);
    if (!authority.has_value() || authority->port == 0) {
      return "CONNECT is for a host and a port";
    }
    head.form = RequestHead::Form::kAuthority;
    head.host = authority->host;
    head.port = authority->port;
    return {};
  }
  if (target == "*" && head.method == "OPTIONS") {
    head.form = RequestHead::Form::kAsterisk;
    head.path = "*";
    return {};
  }
  if (!target.starts_with('/')) {
    return read_absolute(target, head);
  }
  set_path(head, target);
  return {};
}

// "GET /path HTTP/1.1"
Refusable read_request_line(std::string_view line, RequestHead& head) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  const std::string_view method = line.substr(0, first);
  if (first == last || method.size() > kLongestMethod || !is_token(method)) {
    return "the first line is not a request of HTTP/1";
  }
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return "the version of the request is not HTTP/1.0 or HTTP/1.1";
  }
  if (method == "TRACE" || method == "TRACK") {
    return "a request that is sent back can show what was added to it";
  }
  head.minor_version = version.back() - '0';
  head.method = method;
  return read_target(line.substr(first + 1, last - first - 1), head);
}

std::uint16_t port_or(std::uint16_t port, std::uint16_t other) { return port == 0 ? other : port; }

// The Host header is there once, and says what the target says.
Refusable check_host(RequestHead& head) {
  using Form = RequestHead::Form;
  const bool named = head.form == Form::kAbsolute || head.form == Form::kAuthority;
  const std::size_t count = count_headers(head.headers, "host");
  if (count > 1) {
    return "the request has more than one Host";
  }
  if (count == 0) {
    return named && head.minor_version == 0 ? Refusable() : "the request has no Host";
  }
  const auto authority = read_authority(*head.find("host"));
  if (!authority.has_value()) {
    return "the Host of the request is not one";
  }
  if (!named) {
    head.host = authority->host;
    head.port = authority->port;
    return {};
  }
  const std::uint16_t usual = head.form == Form::kAuthority ? head.port : kHttpPort;
  if (authority->host != head.host ||
      port_or(authority->port, usual) != port_or(head.port, usual)) {
    return "the Host of the request is not that of its target";
  }
  return {};
}

Refusable read_framing(RequestHead& head) {
  const std::size_t lengths = count_headers(head.headers, "content-length");
  const std::size_t codings = count_headers(head.headers, "transfer-encoding");
  if (lengths + codings > 1) {
    return "the request says in two ways how long it is";
  }
  if (head.method == "CONNECT" && lengths + codings > 0) {
    return "CONNECT has no body";
  }
  if (codings == 1) {
    if (head.minor_version == 0 || lower(*head.find("transfer-encoding")) != "chunked") {
      return "the only coding of a body is chunked, in HTTP/1.1";
    }
    head.body = {BodyFraming::Kind::kChunked, 0};
  } else if (lengths == 1) {
    const std::string& text = *head.find("content-length");
    std::uint64_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length, 10);
    if (error != std::errc() || end != text.data() + text.size() || length > kLargestBody) {
      return "the length of the body is not a number";
    }
    head.body = {BodyFraming::Kind::kLength, length};
  }
  return {};
}

// The words of all Connection headers, in lower case.
std::vector<std::string> connection_words(const RequestHead& head) {
  std::vector<std::string> words;
  for (const Header& header : head.headers) {
    if (header.name != "connection" && header.name != "proxy-connection") {
      continue;
    }
    std::string_view list = header.value;
    for (;;) {
      const std::size_t comma = list.find(',');
      words.push_back(lower(trimmed(list.substr(0, comma))));
      if (comma == std::string_view::npos) {
        break;
      }
      list.remove_prefix(comma + 1);
    }
  }
  return words;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Refusable read_connection(RequestHead& head) {
  const std::vector<std::string> words = connection_words(head);
  for (const std::string_view name : {"host", "content-length", "transfer-encoding", "expect"}) {
    if (has(words, name)) {
      return "the request calls a header that it needs one of this hop";
    }
  }
  head.keeps_open = head.minor_version == 0 ? has(words, "keep-alive") : !has(words, "close");
  const std::string* upgrade = head.find("upgrade");
  head.upgrades = upgrade != nullptr && has(words, "upgrade") && head.minor_version == 1 &&
                  lower(*upgrade) == "websocket" && count_headers(head.headers, "upgrade") == 1;
  if (const std::string* expect = head.find("expect"); expect != nullptr) {
    if (lower(*expect) != "100-continue" || count_headers(head.headers, "expect") != 1) {
      return "the request expects what nobody gives";
    }
    head.expects_continue = head.minor_version == 1;
  }
  return {};
}

Refusable read_head(std::string_view text, RequestHead& head) {
  const std::size_t end = text.find("\r\n");
  if (const Refusable why = read_request_line(text.substr(0, end), head); !why.empty()) {
    return why;
  }
  if (const Refusable why = read_fields(text.substr(end + 2), head.headers); !why.empty()) {
    return why;
  }
  for (const auto check : {check_host, read_framing, read_connection}) {
    if (const Refusable why = check(head); !why.empty()) {
      return why;
    }
  }
  return {};
}

// Bytes that no head of a request has, whatever follows.
bool is_hopeless(std::string_view text) {
  const std::string_view start = text.substr(0, text.find_first_of(" \r\n"));
  if (!start.empty() ? !is_token(start) || start.size() > kLongestMethod : !text.empty()) {
    return true;
  }
  for (std::size_t at = text.find('\n'); at != std::string_view::npos;
       at = text.find('\n', at + 1)) {
    if (text[at - 1] != '\r') {
      return true;
    }
  }
  return text.find('\0') != std::string_view::npos;
}

bool is_of_one_hop(const std::string& name, const std::vector<std::string>& words) {
  return name == "connection" || name == "keep-alive" || name == "upgrade" || name == "te" ||
         name.starts_with("proxy-") || has(words, name);
}

}  // namespace

const std::string* RequestHead::find(std::string_view name) const {
  const Header* header = find_header(headers, name);
  return header == nullptr ? nullptr : &header->value;
}

Parsed<RequestHead> parse_request_head(Bytes bytes) {
  using Result = Parsed<RequestHead>;
  const std::string_view text = as_text(bytes);
  const std::optional<std::size_t> end = end_of_head(text);
  const std::string_view there = text.substr(0, end.value_or(text.size()));
  if (is_hopeless(there)) {
    return Result::refused("the bytes are not a request of HTTP/1");
  }
  if (there.size() > kLargestRequestHead) {
    return Result::refused("the head of the request is larger than 32k");
  }
  if (!end.has_value()) {
    return Result::need_more();
  }
  RequestHead head;
  const Refusable why = read_head(there.substr(0, there.size() - 2), head);
  return why.empty() ? Result::done(std::move(head), *end) : Result::refused(why);
}

std::string write_request_head(const RequestHead& head) {
  const std::vector<std::string> words = connection_words(head);
  std::string text = policy::concat({head.method, " ", head.path, head.query, " HTTP/1.",
                                     head.minor_version == 0 ? "0" : "1", "\r\n"});
  // The host in the spelling that was decided on.
  std::string host = policy::endpoint_text(head.host, head.port);
  if (head.port == 0) {
    host.resize(host.rfind(':'));
  }
  text += policy::concat({"host: ", host, "\r\n"});
  for (const Header& header : head.headers) {
    if (header.name != "host" && !is_of_one_hop(header.name, words)) {
      text += policy::concat({header.name, ": ", header.value, "\r\n"});
    }
  }
  if (head.upgrades) {
    text += "connection: upgrade\r\nupgrade: websocket\r\n";
  } else if (!head.keeps_open) {
    text += "connection: close\r\n";
  } else if (head.minor_version == 0) {
    text += "connection: keep-alive\r\n";
  }
  return text + "\r\n";
}

Parsed<ResponseHead> parse_response_head(Bytes bytes) {
  using Result = Parsed<ResponseHead>;
  const std::string_view text = as_text(bytes);
  const std::optional<std::size_t> end = end_of_head(text);
  if (end.value_or(text.size()) > kLargestHead) {
    return Result::refused("the head of the answer is larger than 64k");
  }
  if (!end.has_value()) {
    return Result::need_more();
  }
  auto head = parse_head(text.substr(0, *end));
  return head.ok() ? Result::done(std::move(head.value()), *end)
                   : Result::refused("the head of the answer is not HTTP as it should be");
}

}  // namespace carrel::http
