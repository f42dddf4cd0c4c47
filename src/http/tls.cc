#include "http/tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "http/tls_stream.h"

// Of src/base/musl.c, in the program that is linked with it.
extern "C" __attribute__((weak)) void carrel_prepare_openssl(void);

namespace carrel::http {

struct TlsTrust::State {
  SSL_CTX* context = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { SSL_CTX_free(context); }
};

namespace {

// Where systems keep their authorities in one file.
constexpr std::array kBundles = {"/etc/ssl/certs/ca-certificates.crt",
                                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                 "/etc/ssl/cert.pem",
                                 "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"};

std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

// A session with what it needs below and behind it.
class ClientStream final : public Stream {
 public:
  ClientStream(std::unique_ptr<Stream> below, std::shared_ptr<TlsTrust::State> trust,
               ssl_st* session)
      : below_(std::move(below)), trust_(std::move(trust)), session_(*below_, session) {}

  Status begin(const std::string& host, Deadline deadline) {
    return session_.begin("talk TLS with '" + host + "'", deadline);
  }
  Result<std::size_t> read(std::span<char> into, Deadline deadline) override {
    return session_.read(into, deadline);
  }
  Status write(std::string_view bytes, Deadline deadline) override {
    return session_.write(bytes, deadline);
  }
  [[nodiscard]] bool has_pending() const override { return session_.has_pending(); }

 private:
  std::unique_ptr<Stream> below_;
  std::shared_ptr<TlsTrust::State> trust_;  // outlives the session
  TlsStream session_;
};

Result<std::shared_ptr<TlsTrust::State>> make_state() {
  CARREL_TRY(prepare_tls());
  auto state = std::make_shared<TlsTrust::State>();
  state->context = SSL_CTX_new(TLS_client_method());
  if (state->context == nullptr ||
      SSL_CTX_set_min_proto_version(state->context, TLS1_2_VERSION) != 1) {
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
  CARREL_ASSIGN(ssl_st * session, trust.ask_for(host));
  auto stream = std::make_unique<ClientStream>(std::move(below), trust.state(), session);
  CARREL_TRY(stream->begin(host, deadline));
  return std::unique_ptr<Stream>(std::move(stream));
}

}  // namespace carrel::http
