#include "egress/tls_authority.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "http/tls.h"

namespace carrel::egress {

namespace {

constexpr long kDay = 24L * 3600;
constexpr long kAuthorityDays = 5 * 365;
constexpr long kServerDays = 30;
constexpr std::chrono::hours kServerUse{24 * 7};  // then another one is made
constexpr std::size_t kMostCertificates = 256;
constexpr char kAuthorityName[] = "Carrel sandbox";

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using CertificatePointer = std::unique_ptr<X509, FreeCertificate>;
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

Error cannot(std::string_view what) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return Error{Code::kSystem,
               0,
               "cannot " + std::string(what) + ": " + (reason == nullptr ? "no reason" : reason),
               {}};
}

bool add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool add_serial(X509* certificate) {
  std::array<unsigned char, 16> number{};
  if (RAND_bytes(number.data(), static_cast<int>(number.size())) != 1) {
    return false;
  }
  number[0] = static_cast<unsigned char>((number[0] & 0x7f) | 0x40);  // positive, always as long
  BIGNUM* value = BN_bin2bn(number.data(), static_cast<int>(number.size()), nullptr);
  const bool set =
      value != nullptr && BN_to_ASN1_INTEGER(value, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(value);
  return set;
}

// A certificate without its extensions and its signature.
CertificatePointer begin_certificate(EVP_PKEY* key, const X509_NAME* issuer, const char* name,
                                     long days) {
  CertificatePointer certificate(X509_new());
  if (!certificate || X509_set_version(certificate.get(), 2) != 1 ||
      !add_serial(certificate.get()) ||
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay) == nullptr ||
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days * kDay) == nullptr ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return nullptr;
  }
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  if (X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(name), -1, -1, 0) != 1 ||
      X509_set_issuer_name(certificate.get(), issuer != nullptr ? issuer : subject) != 1) {
    return nullptr;
  }
  return certificate;
}

CertificatePointer make_authority(EVP_PKEY* key) {
  const std::string name = std::string(kAuthorityName) + " authority";
  CertificatePointer certificate = begin_certificate(key, nullptr, name.c_str(), kAuthorityDays);
  X509* own = certificate.get();
  if (own == nullptr ||
      !add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(own, own, NID_subject_key_identifier, "hash") ||
      !add_extension(own, own, NID_authority_key_identifier, "keyid:always") ||
      X509_sign(own, key, EVP_sha256()) == 0) {
    return nullptr;
  }
  return certificate;
}

// The one protocol that requests are read in.
int choose_protocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* size,
                    const unsigned char* offered, unsigned int offered_size, void* /*context*/) {
  constexpr std::string_view kHttp = "http/1.1";
  std::string_view rest(reinterpret_cast<const char*>(offered), offered_size);
  while (!rest.empty()) {
    const auto length = static_cast<unsigned char>(rest.front());
    if (rest.substr(1, length) == kHttp) {
      *chosen = reinterpret_cast<const unsigned char*>(rest.data()) + 1;
      *size = length;
      return SSL_TLSEXT_ERR_OK;
    }
    rest.remove_prefix(std::min<std::size_t>(rest.size(), length + std::size_t{1}));
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

Context make_context() {
  Context context(SSL_CTX_new(TLS_server_method()));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_num_tickets(context.get(), 0) != 1) {
    return nullptr;
  }
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context.get(), &choose_protocol, nullptr);
  return context;
}

}  // namespace

struct TlsAuthority::Keys {
  Key own;
  Key servers;  // one for all of them: it never leaves this process either
  CertificatePointer certificate;
  Context context;
};

struct TlsAuthority::Certificate {
  CertificatePointer certificate;
  Deadline use_until{};
};

namespace {

constexpr const char* kCurve = "P-256";

}  // namespace

TlsAuthority::TlsAuthority(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}
TlsAuthority::~TlsAuthority() = default;

Result<std::unique_ptr<TlsAuthority>> TlsAuthority::make() {
  CARREL_TRY(http::prepare_tls());
  auto keys = std::make_unique<Keys>();
  keys->own.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", kCurve));
  keys->servers.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", kCurve));
  if (!keys->own || !keys->servers) {
    return cannot("make the keys of a certificate authority");
  }
  keys->certificate = make_authority(keys->own.get());
  keys->context = make_context();
  if (!keys->certificate || !keys->context) {
    return cannot("make a certificate authority");
  }
  return std::unique_ptr<TlsAuthority>(new TlsAuthority(std::move(keys)));
}

Result<std::string> TlsAuthority::certificate() const {
  const std::unique_ptr<BIO, FreeBio> bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), keys_->certificate.get()) != 1) {
    return cannot("write a certificate down");
  }
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<std::size_t>(size));
}

Result<const TlsAuthority::Certificate*> TlsAuthority::certificate_for(const policy::Host& host) {
  const auto found = made_.find(host.text());
  if (found != made_.end() && Clock::now() < found->second.use_until) {
    return &found->second;
  }
  if (made_.size() >= kMostCertificates) {
    made_.clear();
  }
  X509* issuer = keys_->certificate.get();
  CertificatePointer certificate = begin_certificate(
      keys_->servers.get(), X509_get_subject_name(issuer), kAuthorityName, kServerDays);
  X509* own = certificate.get();
  const std::string names = (host.is_name() ? "DNS:" : "IP:") + host.text();
  if (own == nullptr || !add_extension(own, issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(own, issuer, NID_key_usage, "critical,digitalSignature") ||
      !add_extension(own, issuer, NID_ext_key_usage, "serverAuth") ||
      !add_extension(own, issuer, NID_subject_alt_name, names.c_str()) ||
      !add_extension(own, issuer, NID_subject_key_identifier, "hash") ||
      !add_extension(own, issuer, NID_authority_key_identifier, "keyid:always") ||
      X509_sign(own, keys_->own.get(), EVP_sha256()) == 0) {
    return cannot("make a certificate for '" + host.text() + "'");
  }
  Certificate& kept = made_[host.text()];
  kept.certificate = std::move(certificate);
  kept.use_until = Clock::now() + kServerUse;
  return &kept;
}

Result<TlsSession> TlsAuthority::answer_as(const policy::Host& host) {
  CARREL_ASSIGN(const Certificate* certificate, certificate_for(host));
  TlsSession session(SSL_new(keys_->context.get()));
  if (!session || SSL_use_certificate(session.get(), certificate->certificate.get()) != 1 ||
      SSL_use_PrivateKey(session.get(), keys_->servers.get()) != 1) {
    return cannot("answer as '" + host.text() + "'");
  }
  SSL_set_accept_state(session.get());
  return session;
}

}  // namespace carrel::egress
