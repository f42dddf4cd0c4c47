#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/listener.h"
#include "http/request_head.h"
#include "manager/manager.h"
#include "server/routes.h"

namespace carrel::server {

// Who may do what. Tokens are known by their digests alone.
class Access {
 public:
  struct Token {
    std::string owner;
    Scope scope = Scope::kRead;
    std::string digest;  // SHA-256, 64 hex digits
    manager::Quota quota = {};
  };

  // Lines of "NAME SCOPE DIGEST QUOTA...", where the scope is read or write and the quota is of all
  // that have the name, such as "memory=4g"; empty lines and those that begin with '#' are left
  // out. `path` is for the errors.
  static Result<std::vector<Token>> parse_tokens(std::string_view text, const std::string& path);
  // A new token, 256 bits, and the line that lets it in.
  struct NewToken {
    std::string secret;
    std::string line;
  };
  static Result<NewToken> make_token(const std::string& name, Scope scope,
                                     const std::vector<std::string>& quota = {});

  // Also while requests are served: what is asked afterwards is asked of these.
  void set_tokens(std::vector<Token> tokens);
  void add_host(std::string name) { hosts_.push_back(std::move(name)); }

  // What a request over this listener may not be, before anything of it is used: for another host,
  // or from a web page. The error is 403's.
  [[nodiscard]] Status check_place(const http::RequestHead& head,
                                   const http::Listener& listener) const;

  struct Identity {
    manager::Caller caller;
    Scope scope = Scope::kOpen;
    std::string digest = {};  // of the token; empty: there was none
  };
  // Who asks. On a unix socket that is the kernel's word, elsewhere a token's; nobody in particular
  // has kOpen. kDenied for a peer who is neither this user nor root.
  [[nodiscard]] Result<Identity> identify(const http::RequestHead& head,
                                          const http::Listener& listener, int socket) const;
  // Whether somebody who was let in so would be let in the same way now.
  [[nodiscard]] bool still_admits(const Identity& identity) const;

 private:
  mutable std::mutex mutex_;  // for the tokens
  std::vector<Token> tokens_;
  std::vector<std::string> hosts_;  // beside those of the listener
};

// Whether two texts are the same, in a time that does not tell where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace carrel::server
