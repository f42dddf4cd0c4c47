#include "http/tls_server.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "http/tls.h"

namespace carrel::http {

struct TlsIdentity::State {
  SSL_CTX* context = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { SSL_CTX_free(context); }
};

namespace {

constexpr std::size_t kLargestFile = 1U << 20;

// What of the file's mode others must not have.
Result<std::string> read_pem(const std::string& path, mode_t forbidden, const char* hint) {
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_RDONLY));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) {
    return system_error("look at '" + path + "'");
  }
  if ((info.st_mode & forbidden) != 0) {
    return Error{Code::kDenied, 0,
                 std::string("others can ") + ((forbidden & 044) != 0 ? "read" : "write to") +
                     " '" + path + "'",
                 hint};
  }
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Error{Code::kDenied, 0, "'" + path + "' belongs to another user", {}};
  }
  return read_all(file.get(), kLargestFile);
}

// A key that needs a passphrase has nobody here to ask for it.
int no_passphrase(char* /*into*/, int /*size*/, int /*use*/, void* /*data*/) { return -1; }

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Memory = std::unique_ptr<BIO, FreeBio>;

Memory memory_of(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using Certificate = std::unique_ptr<X509, FreeCertificate>;

Status use_certificates(SSL_CTX* context, const std::string& text, const std::string& path) {
  const Memory memory = memory_of(text);
  const Certificate own(PEM_read_bio_X509_AUX(memory.get(), nullptr, no_passphrase, nullptr));
  if (!own || SSL_CTX_use_certificate(context, own.get()) != 1) {
    return tls_error("read the certificate in '" + path + "'");
  }
  for (;;) {
    Certificate next(PEM_read_bio_X509(memory.get(), nullptr, no_passphrase, nullptr));
    if (!next) {
      ERR_clear_error();  // there is no more
      return {};
    }
    if (SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, 1, next.get()) != 1) {
      return tls_error("use the chain in '" + path + "'");
    }
  }
}

Status use_key(SSL_CTX* context, std::string& text, const std::string& path) {
  const Memory memory = memory_of(text);
  const std::unique_ptr<EVP_PKEY, FreeKey> key(
      PEM_read_bio_PrivateKey(memory.get(), nullptr, no_passphrase, nullptr));
  OPENSSL_cleanse(text.data(), text.size());
  if (!key) {
    return tls_error("read the key in '" + path + "'");
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    Error error = tls_error("use the key in '" + path + "'");
    error.hint = "it has to be the certificate's";
    return error;
  }
  return {};
}

}  // namespace

Result<TlsIdentity> TlsIdentity::of_files(const std::string& certificate, const std::string& key) {
  CARREL_ASSIGN(const std::string chain, read_pem(certificate, 022, "chmod go-w it"));
  CARREL_ASSIGN(std::string secret, read_pem(key, 077, "chmod 600 it"));
  CARREL_TRY(prepare_tls());
  ERR_clear_error();
  auto state = std::make_shared<State>();
  state->context = SSL_CTX_new(TLS_server_method());
  if (state->context == nullptr ||
      SSL_CTX_set_min_proto_version(state->context, TLS1_2_VERSION) != 1) {
    return tls_error("set up TLS");
  }
  SSL_CTX_set_options(state->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                          SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
  CARREL_TRY(use_certificates(state->context, chain, certificate));
  CARREL_TRY(use_key(state->context, secret, key));
  return TlsIdentity(std::move(state));
}

Result<std::unique_ptr<TlsStream>> TlsIdentity::serve(Stream& below) const {
  ERR_clear_error();
  SSL* session = SSL_new(state_->context);  // which keeps the context
  if (session == nullptr) {
    return tls_error("set up TLS");
  }
  SSL_set_accept_state(session);
  return std::make_unique<TlsStream>(below, session);
}

}  // namespace carrel::http
