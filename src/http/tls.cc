#include "http/tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

// Of src/base/musl.c, in the program that is linked with it.
extern "C" __attribute__((weak)) void carrel_prepare_openssl(void);

namespace carrel::http {

struct TlsTrust::State {
  SSL_CTX* context = nullptr;
  BIO_METHOD* through = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    SSL_CTX_free(context);
    BIO_meth_free(through);
  }
};

namespace {

// Where systems keep their authorities in one file.
constexpr std::array kBundles = {"/etc/ssl/certs/ca-certificates.crt",
                                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                 "/etc/ssl/cert.pem",
                                 "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"};

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason was given" : reason;
}

Error tls_error(const std::string& what) {
  return Error{Code::kDenied, 0, what + ": " + openssl_reason(), {}};
}

std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

// What OpenSSL reads and writes through; the error of the connection stays here.
class TlsStream final : public Stream {
 public:
  TlsStream(std::unique_ptr<Stream> below, std::shared_ptr<TlsTrust::State> trust)
      : below_(std::move(below)), trust_(std::move(trust)) {}
  ~TlsStream() override { SSL_free(ssl_); }

  Status begin(const TlsTrust& trust, const std::string& host, Deadline deadline);
  Result<std::size_t> read(std::span<char> into, Deadline deadline) override;
  Status write(std::string_view bytes, Deadline deadline) override;

  static int read_below(BIO* bio, char* into, int size);
  static int write_below(BIO* bio, const char* bytes, int size);
  static long control(BIO* bio, int command, long number, void* pointer);

 private:
  // Why the last call failed.
  Error failure(const std::string& what);

  std::unique_ptr<Stream> below_;
  std::shared_ptr<TlsTrust::State> trust_;  // outlives ssl_
  SSL* ssl_ = nullptr;
  Deadline deadline_;
  std::optional<Error> error_;
};

int TlsStream::read_below(BIO* bio, char* into, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  auto got = stream.below_->read({into, static_cast<std::size_t>(size)}, stream.deadline_);
  if (!got.ok()) {
    stream.error_ = std::move(got.error());
    return -1;
  }
  return static_cast<int>(got.value());
}

int TlsStream::write_below(BIO* bio, const char* bytes, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  auto done = stream.below_->write({bytes, static_cast<std::size_t>(size)}, stream.deadline_);
  if (!done.ok()) {
    stream.error_ = std::move(done.error());
    return -1;
  }
  return size;
}

long TlsStream::control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

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

Status TlsStream::begin(const TlsTrust& trust, const std::string& host, Deadline deadline) {
  CARREL_ASSIGN(ssl_, trust.ask_for(host));
  BIO* bio = BIO_new(trust_->through);
  if (bio == nullptr) {
    return tls_error("set up TLS");
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  deadline_ = deadline;
  if (SSL_connect(ssl_) != 1) {
    return failure("talk TLS with '" + host + "'");
  }
  return {};
}

Result<std::size_t> TlsStream::read(std::span<char> into, Deadline deadline) {
  ERR_clear_error();
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
  ERR_clear_error();
  deadline_ = deadline;
  std::size_t size = 0;
  if (SSL_write_ex(ssl_, bytes.data(), bytes.size(), &size) != 1 || size != bytes.size()) {
    return failure("write by TLS");
  }
  return {};
}

Result<std::shared_ptr<TlsTrust::State>> make_state() {
  CARREL_TRY(prepare_tls());
  auto state = std::make_shared<TlsTrust::State>();
  state->context = SSL_CTX_new(TLS_client_method());
  state->through = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "carrel");
  if (state->context == nullptr || state->through == nullptr ||
      SSL_CTX_set_min_proto_version(state->context, TLS1_2_VERSION) != 1 ||
      BIO_meth_set_read(state->through, &TlsStream::read_below) != 1 ||
      BIO_meth_set_write(state->through, &TlsStream::write_below) != 1 ||
      BIO_meth_set_ctrl(state->through, &TlsStream::control) != 1) {
    return tls_error("set up TLS");
  }
  SSL_CTX_set_verify(state->context, SSL_VERIFY_PEER, nullptr);
  return state;
}

Status load(TlsTrust::State& state, const std::string& file, const std::string& directory) {
  if (SSL_CTX_load_verify_locations(state.context, file.empty() ? nullptr : file.c_str(),
                                    directory.empty() ? nullptr : directory.c_str()) != 1) {
    return tls_error("read the authorities in '" + (file.empty() ? directory : file) + "'");
  }
  return {};
}

}  // namespace

// No configuration is read and nothing runs at exit.
Status prepare_tls() {
  if (carrel_prepare_openssl != nullptr) {
    carrel_prepare_openssl();
  }
  if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) {
    return tls_error("set up TLS");
  }
  return {};
}

Result<std::string> authorities_of_this_host() {
  const auto found = std::find_if(kBundles.begin(), kBundles.end(), [](const char* path) {
    return ::faccessat(AT_FDCWD, path, R_OK, 0) == 0;
  });
  if (found == kBundles.end()) {
    return Error{Code::kUnavailable, 0, "this host has no list of certificate authorities",
                 "install ca-certificates, or name a file in SSL_CERT_FILE"};
  }
  return std::string(*found);
}

Result<ssl_st*> TlsTrust::ask_for(const std::string& host) const {
  ERR_clear_error();
  SSL* ssl = SSL_new(state_->context);
  if (ssl == nullptr) {
    return tls_error("set up TLS");
  }
  in6_addr address{};
  const bool numeric = ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
                       ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
  X509_VERIFY_PARAM* wanted = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(
      wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  const int named = numeric ? X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str())
                            : X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size());
  if (named != 1 ||
      (!numeric && SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                            const_cast<char*>(host.c_str())) != 1)) {
    SSL_free(ssl);
    return tls_error("check the name '" + host + "'");
  }
  SSL_set_connect_state(ssl);
  return ssl;
}

Result<TlsTrust> TlsTrust::of_this_host() {
  const std::string directory = variable("SSL_CERT_DIR");
  std::string file = variable("SSL_CERT_FILE");
  if (file.empty() && directory.empty()) {
    CARREL_ASSIGN(file, authorities_of_this_host());
  }
  CARREL_ASSIGN(std::shared_ptr<State> state, make_state());
  CARREL_TRY(load(*state, file, directory));
  return TlsTrust(std::move(state));
}

Result<TlsTrust> TlsTrust::of_file(const std::string& path) {
  CARREL_ASSIGN(std::shared_ptr<State> state, make_state());
  CARREL_TRY(load(*state, path, {}));
  return TlsTrust(std::move(state));
}

Result<std::unique_ptr<Stream>> start_tls(std::unique_ptr<Stream> below, const TlsTrust& trust,
                                          const std::string& host, Deadline deadline) {
  auto stream = std::make_unique<TlsStream>(std::move(below), trust.state());
  CARREL_TRY(stream->begin(trust, host, deadline));
  return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace carrel::http
