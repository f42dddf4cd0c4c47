#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "http/tls_stream.h"

namespace carrel::http {

// Who a server says that it is: a certificate with its chain, and the key that belongs to it.
class TlsIdentity {
 public:
  // Two files in the form of PEM. kDenied when others than its owner can read the key, or others
  // than this user or root could have written either.
  static Result<TlsIdentity> of_files(const std::string& certificate, const std::string& key);

  // The server's side of a session over `below`, before its handshake.
  [[nodiscard]] Result<std::unique_ptr<TlsStream>> serve(Stream& below) const;

 private:
  struct State;
  explicit TlsIdentity(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace carrel::http
