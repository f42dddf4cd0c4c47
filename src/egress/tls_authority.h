#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "egress/loop.h"
#include "egress/tls_stream.h"
#include "policy/host.h"

namespace carrel::egress {

// A certificate authority of one sandbox's own, for the servers whose TLS is ended here. Its key is
// in this process's memory and nowhere else, and is gone with it.
class TlsAuthority {
 public:
  static Result<std::unique_ptr<TlsAuthority>> make();
  ~TlsAuthority();
  TlsAuthority(const TlsAuthority&) = delete;
  TlsAuthority& operator=(const TlsAuthority&) = delete;

  // Its own certificate, as text.
  [[nodiscard]] Result<std::string> certificate() const;
  // A session that answers a client as that host: TLS 1.2 or 1.3 and HTTP/1.1.
  Result<TlsSession> answer_as(const policy::Host& host);

 private:
  struct Keys;
  struct Certificate;
  explicit TlsAuthority(std::unique_ptr<Keys> keys);
  Result<const Certificate*> certificate_for(const policy::Host& host);

  std::unique_ptr<Keys> keys_;
  std::map<std::string, Certificate> made_;  // by host
};

}  // namespace carrel::egress
