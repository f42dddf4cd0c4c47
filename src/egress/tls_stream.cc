#include "egress/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace carrel::egress {

namespace {

constexpr std::size_t kRecord = 16U << 10;
constexpr std::chrono::seconds kFarewellPatience{2};

}  // namespace

void FreeSsl::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsStream::TlsStream(Watched& socket, TlsSession session, Bytes already)
    : socket_(&socket), session_(std::move(session)) {
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(session_.get(), in, out);
  // What is not there yet is no end.
  BIO_set_mem_eof_return(in, -1);
  if (!already.empty()) {
    BIO_write(in, already.data(), static_cast<int>(already.size()));
  }
}

TlsStream::~TlsStream() = default;

Error TlsStream::failure() const {
  const long verdict = SSL_get_verify_result(session_.get());
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (verdict != X509_V_OK) {
    return Error{
        Code::kDenied,
        0,
        std::string("its certificate is not good: ") + X509_verify_cert_error_string(verdict),
        {}};
  }
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return Error{Code::kDenied, 0, reason == nullptr ? "it ended early" : reason, {}};
}

Task<bool> TlsStream::flush(Deadline deadline) {
  BIO* out = SSL_get_wbio(session_.get());
  std::array<std::uint8_t, kRecord> buffer;
  for (;;) {
    const int size = BIO_read(out, buffer.data(), static_cast<int>(buffer.size()));
    if (size <= 0) {
      co_return true;
    }
    const bool sent = co_await egress::write_whole(
        *socket_, Bytes(buffer).first(static_cast<std::size_t>(size)), deadline);
    if (!sent) {
      co_return false;
    }
  }
}

Task<std::ptrdiff_t> TlsStream::fill(Deadline deadline) {
  std::array<std::uint8_t, kRecord> buffer;
  const auto n = co_await egress::read_some(*socket_, buffer, deadline);
  if (n > 0) {
    BIO_write(SSL_get_rbio(session_.get()), buffer.data(), static_cast<int>(n));
  }
  co_return n;
}

Task<Status> TlsStream::shake_hands(Deadline deadline) {
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(session_.get());
    const int why = result == 1 ? SSL_ERROR_NONE : SSL_get_error(session_.get(), result);
    Status failed;
    if (why != SSL_ERROR_NONE && why != SSL_ERROR_WANT_READ) {
      failed = failure();
    }
    const bool sent = co_await flush(deadline);  // an alert, too
    if (!failed.ok()) {
      co_return failed;
    }
    if (!sent) {
      co_return Error{Code::kUnavailable, 0, "it ended early", {}};
    }
    if (why == SSL_ERROR_NONE) {
      co_return Status();
    }
    const auto n = co_await fill(deadline);
    if (n <= 0) {
      co_return Error{
          Code::kUnavailable, 0, n == -ETIMEDOUT ? "it took too long" : "it ended early", {}};
    }
  }
}

Task<std::ptrdiff_t> TlsStream::read_some(std::span<std::uint8_t> buffer, Deadline deadline) {
  for (;;) {
    ERR_clear_error();
    std::size_t size = 0;
    const int result = SSL_read_ex(session_.get(), buffer.data(), buffer.size(), &size);
    if (result == 1) {
      co_return static_cast<std::ptrdiff_t>(size);
    }
    const int why = SSL_get_error(session_.get(), result);
    if (why == SSL_ERROR_ZERO_RETURN) {
      co_return 0;
    }
    if (why != SSL_ERROR_WANT_READ) {
      ERR_clear_error();
      co_return -EPROTO;
    }
    const auto n = co_await fill(deadline);
    if (n <= 0) {
      co_return n == 0 ? -EPIPE : n;
    }
  }
}

Task<bool> TlsStream::write_whole(Bytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ERR_clear_error();
    std::size_t size = 0;
    const Bytes piece = bytes.first(std::min(bytes.size(), kRecord));
    const int result = SSL_write_ex(session_.get(), piece.data(), piece.size(), &size);
    if (result != 1) {
      ERR_clear_error();
      co_return false;
    }
    bytes = bytes.subspan(size);
    const bool sent = co_await flush(deadline);
    if (!sent) {
      co_return false;
    }
  }
  co_return true;
}

Task<void> TlsStream::end() {
  ERR_clear_error();
  SSL_shutdown(session_.get());
  ERR_clear_error();
  co_await flush(in(kFarewellPatience));
  ::shutdown(socket_->fd(), SHUT_WR);
}

}  // namespace carrel::egress
