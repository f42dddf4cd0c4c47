#include "http/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace carrel::http {

namespace {

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason was given" : reason;
}

}  // namespace

Error tls_error(const std::string& what) {
  return Error{Code::kDenied, 0, what + ": " + openssl_reason(), {}};
}

// What OpenSSL reads and writes through.
struct TlsStream::Below {
  static int read(BIO* bio, char* into, int size) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    auto got = stream.below_.read({into, static_cast<std::size_t>(size)}, stream.deadline_);
    if (!got.ok()) {
      // What has not come yet may come later: the session stays as it is.
      if (got.error().code == Code::kTimeout) {
        BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
      }
      stream.error_ = std::move(got.error());
      return -1;
    }
    return static_cast<int>(got.value());
  }
  static int write(BIO* bio, const char* bytes, int size) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    auto done = stream.below_.write({bytes, static_cast<std::size_t>(size)}, stream.deadline_);
    if (!done.ok()) {
      stream.error_ = std::move(done.error());
      return -1;
    }
    return size;
  }
  static long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* one = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "carrel");
      const bool whole = one != nullptr && BIO_meth_set_read(one, read) == 1 &&
                         BIO_meth_set_write(one, write) == 1 &&
                         BIO_meth_set_ctrl(one, control) == 1;
      return whole ? one : nullptr;
    }();
    return made;
  }
};

TlsStream::~TlsStream() { SSL_free(ssl_); }

Error TlsStream::failure(const std::string& what) {
  if (error_.has_value()) {
    ERR_clear_error();
    return *error_;
  }
  const int reason = ERR_GET_REASON(ERR_peek_error());
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST) {
    ERR_clear_error();
    return Error{Code::kUnsupported, 0, what + ": it does not speak TLS", {}};
  }
  const long verdict = SSL_get_verify_result(ssl_);
  if (verdict != X509_V_OK) {
    ERR_clear_error();
    return Error{Code::kDenied, 0,
                 what + ": its certificate is not good: " + X509_verify_cert_error_string(verdict),
                 "SSL_CERT_FILE names a file with the authorities to trust"};
  }
  return tls_error(what);
}

Status TlsStream::begin(const std::string& what, Deadline deadline) {
  BIO* bio = Below::method() == nullptr ? nullptr : BIO_new(Below::method());
  if (bio == nullptr) {
    return tls_error("set up TLS");
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  deadline_ = deadline;
  if (SSL_do_handshake(ssl_) != 1) {
    return failure(what);
  }
  return {};
}

Result<std::size_t> TlsStream::read(std::span<char> into, Deadline deadline) {
  ERR_clear_error();
  error_.reset();
  deadline_ = deadline;
  std::size_t size = 0;
  if (SSL_read_ex(ssl_, into.data(), into.size(), &size) == 1) {
    return size;
  }
  if (SSL_get_error(ssl_, 0) == SSL_ERROR_ZERO_RETURN) {
    return std::size_t{0};
  }
  Error error = failure("read by TLS");
  error.code = error.code == Code::kDenied ? Code::kUnavailable : error.code;
  return error;
}

Status TlsStream::write(std::string_view bytes, Deadline deadline) {
  if (bytes.empty()) {
    return {};
  }
  ERR_clear_error();
  error_.reset();
  deadline_ = deadline;
  std::size_t size = 0;
  if (SSL_write_ex(ssl_, bytes.data(), bytes.size(), &size) != 1 || size != bytes.size()) {
    return failure("write by TLS");
  }
  return {};
}

bool TlsStream::has_pending() const { return SSL_pending(ssl_) > 0 || below_.has_pending(); }

void TlsStream::finish(Deadline deadline) {
  ERR_clear_error();
  deadline_ = deadline;
  (void)SSL_shutdown(ssl_);
  ERR_clear_error();
}

}  // namespace carrel::http
