#pragma once

#include <optional>

#include "base/result.h"
#include "egress/tls_stream.h"
#include "http/tls.h"
#include "policy/host.h"

namespace carrel::egress {

// TLS toward servers, by the authorities that this host trusts. Their list is read when it is
// needed first, and again when it was changed.
class TlsServers {
 public:
  // A session that asks for that host and takes nobody else's certificate: HTTP/1.1 and nothing
  // else.
  Result<TlsSession> ask_for(const policy::Host& host);

 private:
  Status look_at_authorities();

  std::optional<http::TlsTrust> trust_;
  std::string version_;  // of the list that was read
};

}  // namespace carrel::egress
