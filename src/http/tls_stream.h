#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "http/stream.h"

struct ssl_st;

namespace carrel::http {

// The last error of OpenSSL's in this thread, behind `what`.
Error tls_error(const std::string& what);

// A TLS session over another stream, of the client's side or the server's. When it ends without
// saying so, that is an error: somebody may have cut it.
class TlsStream final : public Stream {
 public:
  // The session knows its side; it is this object's from now on. `below` outlives it.
  TlsStream(Stream& below, ssl_st* session) : below_(below), ssl_(session) {}
  ~TlsStream() override;

  // The handshake. `what` is what it is for, as the beginning of a sentence about its failure.
  Status begin(const std::string& what, Deadline deadline);
  Result<std::size_t> read(std::span<char> into, Deadline deadline) override;
  Status write(std::string_view bytes, Deadline deadline) override;
  [[nodiscard]] bool has_pending() const override;
  // Says that this was all.
  void finish(Deadline deadline);

 private:
  struct Below;
  // Why the last call failed.
  Error failure(const std::string& what);

  Stream& below_;
  ssl_st* ssl_;
  Deadline deadline_;
  std::optional<Error> error_;  // of the stream below
};

}  // namespace carrel::http
