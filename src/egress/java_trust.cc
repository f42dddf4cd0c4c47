#include "egress/java_trust.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "http/tls.h"

namespace carrel::egress {

namespace {

constexpr std::uint32_t kMagic = 0xfeedfeed;
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kTrusted = 2;
constexpr std::string_view kPassword = "changeit";
constexpr std::string_view kSalt = "Mighty Aphrodite";

void add(std::string& to, std::uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) {
    to += static_cast<char>(value >> (8 * i) & 0xff);
  }
}

void add_text(std::string& to, std::string_view text) {
  add(to, text.size(), 2);
  to += text;
}

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};

// The contents of one text, or false at the end of them.
bool next_certificate(BIO* text, std::string& contents) {
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* data = nullptr;
  long size = 0;
  if (PEM_read_bio(text, &name, &header, &data, &size) != 1) {
    ERR_clear_error();
    return false;
  }
  const bool plain = std::string_view(name) == PEM_STRING_X509;
  contents = plain
                 ? std::string(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size))
                 : std::string();
  OPENSSL_free(name);
  OPENSSL_free(header);
  OPENSSL_free(data);
  return true;
}

}  // namespace

Result<std::string> java_trust_store(const std::string& certificates) {
  const Error failed{Code::kSystem, 0, "cannot write a key store for Java", {}};
  CARREL_TRY(http::prepare_tls());
  const std::unique_ptr<BIO, FreeBio> text(
      BIO_new_mem_buf(certificates.data(), static_cast<int>(certificates.size())));
  if (text == nullptr) {
    return failed;
  }
  std::string entries;
  std::uint32_t count = 0;
  for (std::string one; next_certificate(text.get(), one);) {
    if (one.empty()) {
      continue;
    }
    add(entries, kTrusted, 4);
    add_text(entries, "authority" + std::to_string(++count));
    add(entries, 0, 8);  // when it was added
    add_text(entries, "X.509");
    add(entries, one.size(), 4);
    entries += one;
  }
  std::string store;
  add(store, kMagic, 4);
  add(store, kVersion, 4);
  add(store, count, 4);
  store += entries;
  std::string sealed;
  for (const char c : kPassword) {
    add(sealed, static_cast<unsigned char>(c), 2);
  }
  sealed.append(kSalt).append(store);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(sealed.data(), sealed.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1) {
    return failed;
  }
  return store.append(reinterpret_cast<const char*>(digest.data()), size);
}

}  // namespace carrel::egress
