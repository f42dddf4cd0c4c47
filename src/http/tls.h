#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "http/stream.h"

struct ssl_st;

namespace carrel::http {

// Sets OpenSSL up, with no configuration of its own. Nothing of it runs before the first of these.
Status prepare_tls();
// The file that has the system's certificate authorities.
Result<std::string> authorities_of_this_host();

// Whom to believe that a server is who it says. OpenSSL is set up with the first of these, and not
// before; it reads no configuration of its own.
class TlsTrust {
 public:
  // The authorities of SSL_CERT_FILE and SSL_CERT_DIR, or where neither is set, the system's.
  static Result<TlsTrust> of_this_host();
  // Those of one file alone.
  static Result<TlsTrust> of_file(const std::string& path);

  // A session that will ask for `host`, a name or an address, and take no certificate that is not
  // for it. Nothing is below it yet, and whoever gets it frees it.
  [[nodiscard]] Result<ssl_st*> ask_for(const std::string& host) const;

  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

 private:
  explicit TlsTrust(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// TLS 1.2 or 1.3 over `below`, with a certificate that is valid for `host`, a name or an address.
// Somebody who does not speak TLS at all is Code::kUnsupported. When it ends without saying so,
// that is an error: somebody may have cut it.
Result<std::unique_ptr<Stream>> start_tls(std::unique_ptr<Stream> below, const TlsTrust& trust,
                                          const std::string& host, Deadline deadline);

}  // namespace carrel::http
