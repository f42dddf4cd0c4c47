#include "server/access.h"

#include <unistd.h>

#include <algorithm>

#include "base/sha256.h"
#include "policy/host.h"
#include "server/preview.h"
#include "storage/home.h"

namespace carrel::server {
namespace {

constexpr std::string_view kPrefix = "carrel_";
constexpr std::size_t kSecretDigits = 64;
constexpr std::size_t kLongestToken = 256;

Error denied(std::string message) { return {Code::kDenied, 0, std::move(message), {}}; }

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    if (end > 0) {
      words.push_back(line.substr(0, end));
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// The token of "Authorization: Bearer TOKEN", the only header of its name.
std::string_view token_of(const http::RequestHead& head) {
  constexpr std::string_view kScheme = "Bearer ";
  if (http::count_headers(head.headers, "authorization") != 1) {
    return {};
  }
  const std::string_view value = *head.find("authorization");
  return value.starts_with(kScheme) && value.size() <= kLongestToken ? value.substr(kScheme.size())
                                                                     : std::string_view();
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) {
    return false;
  }
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  }
  return different == 0;
}

Result<std::vector<Access::Token>> Access::parse_tokens(std::string_view text,
                                                        const std::string& path) {
  std::vector<Token> tokens;
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty() || words.front().starts_with('#')) {
      continue;
    }
    const bool scoped = words.size() >= 3 && (words[1] == "read" || words[1] == "write");
    if (!scoped || !is_name(words[0]) || !is_sha256(words[2])) {
      return Error{
          Code::kInvalid, 0,
          path + ":" + std::to_string(number) + ": not a name, read or write, and a digest",
          "'carrel serve --new-token NAME' makes such lines"};
    }
    Token token{std::string(words[0]), words[1] == "write" ? Scope::kWrite : Scope::kRead,
                std::string(words[2])};
    for (std::size_t i = 3; i < words.size(); ++i) {
      if (Status good = manager::add_to_quota(words[i], token.quota); !good.ok()) {
        good.error().message = path + ":" + std::to_string(number) + ": " + good.error().message;
        return good.error();
      }
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void Access::set_tokens(std::vector<Token> tokens) {
  const std::lock_guard lock(mutex_);
  tokens_ = std::move(tokens);
}

Result<Access::NewToken> Access::make_token(const std::string& name, Scope scope,
                                            const std::vector<std::string>& quota) {
  if (!is_name(name)) {
    return Error{Code::kInvalid, 0, "a token's name has letters, digits, '-', '_' and '.'", {}};
  }
  NewToken token;
  token.secret = std::string(kPrefix) + storage::random_hex(kSecretDigits);
  token.line = name + (scope == Scope::kWrite ? " write " : " read ") + sha256(token.secret);
  manager::Quota checked;
  for (const std::string& part : quota) {
    CARREL_TRY(manager::add_to_quota(part, checked));
    token.line += " " + part;
  }
  token.line += "\n";
  return token;
}

Status Access::check_place(const http::RequestHead& head, const http::Listener& listener) const {
  const bool own_port =
      head.port == 0 || listener.kind == http::Listener::Kind::kUnix || head.port == listener.port;
  if (const auto preview = find_preview(head);
      preview.has_value() && preview->by == Preview::By::kHost && own_port) {
    // An origin of its own: its pages may ask it, and pages of others may not.
    const std::string* origin = head.find("origin");
    const std::string host = policy::endpoint_text(head.host, head.port);
    if (origin != nullptr && *origin != (listener.encrypted ? "https://" : "http://") + host) {
      return denied("requests of other pages are not passed on");
    }
    return {};
  }
  if (head.find("origin") != nullptr) {
    return denied("requests of web pages are not served");
  }
  if (const std::string* site = head.find("sec-fetch-site");
      site != nullptr && *site != "none" && *site != "same-origin") {
    return denied("requests of web pages are not served");
  }
  const std::string host = policy::endpoint_text(head.host, head.port);
  const std::string name = host.substr(0, host.rfind(':'));
  const bool port_fits =
      head.port == 0 || listener.kind == http::Listener::Kind::kUnix || head.port == listener.port;
  bool known = std::find(hosts_.begin(), hosts_.end(), name) != hosts_.end();
  known = known || name == "localhost" || name == "127.0.0.1" || name == "[::1]" || name == "::1";
  if (listener.kind == http::Listener::Kind::kUnix) {
    known = known || name == "carrel";
  } else {
    known = known || listener.name == name + ":" + std::to_string(listener.port);
  }
  if (!known || !port_fits) {
    return Error{Code::kDenied, 0, "this is not the host '" + (head.port == 0 ? name : host) + "'",
                 "call it 'localhost', or give the daemon this name with --host"};
  }
  return {};
}

Result<Access::Identity> Access::identify(const http::RequestHead& head,
                                          const http::Listener& listener, int socket) const {
  if (listener.kind == http::Listener::Kind::kUnix) {
    CARREL_ASSIGN(const uid_t peer, http::peer_of(socket));
    if (peer != ::geteuid() && peer != 0) {
      return denied("this socket is for its owner alone");
    }
    return Identity{{}, Scope::kWrite, {}};
  }
  const std::string_view given = token_of(head);
  if (given.empty()) {
    return Identity{};
  }
  // All of them are compared, whichever fits.
  const std::string digest = sha256(given);
  Identity identity;
  const std::lock_guard lock(mutex_);
  for (const Token& token : tokens_) {
    if (equal_in_constant_time(token.digest, digest)) {
      identity = {{token.owner, token.quota}, token.scope, token.digest};
    }
  }
  return identity;
}

bool Access::still_admits(const Identity& identity) const {
  const std::lock_guard lock(mutex_);
  return identity.digest.empty() ||
         std::any_of(tokens_.begin(), tokens_.end(), [&](const Token& token) {
           return token.digest == identity.digest && token.owner == identity.caller.owner &&
                  token.scope == identity.scope;
         });
}

}  // namespace carrel::server
