#include "egress/tls_servers.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <array>
#include <string>

#include "base/files.h"

namespace carrel::egress {

Status TlsServers::look_at_authorities() {
  CARREL_ASSIGN(const std::string path, http::authorities_of_this_host());
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_RDONLY));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) {
    return system_error("look at '" + path + "'");
  }
  std::string version = path + " " + std::to_string(info.st_ino) + " " +
                        std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) +
                        "." + std::to_string(info.st_mtim.tv_nsec);
  if (trust_.has_value() && version == version_) {
    return {};
  }
  CARREL_ASSIGN(trust_, http::TlsTrust::of_file(path));
  version_ = std::move(version);
  return {};
}

Result<TlsSession> TlsServers::ask_for(const policy::Host& host) {
  constexpr std::array<unsigned char, 9> kProtocols = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  CARREL_TRY(look_at_authorities());
  CARREL_ASSIGN(ssl_st * made, trust_->ask_for(host.text()));
  TlsSession session(made);
  SSL_set_options(made, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  if (SSL_set_alpn_protos(made, kProtocols.data(), kProtocols.size()) != 0) {
    return Error{Code::kSystem, 0, "cannot ask a server for HTTP/1.1", {}};
  }
  return session;
}

}  // namespace carrel::egress
