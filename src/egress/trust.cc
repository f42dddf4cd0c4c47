#include "egress/trust.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "egress/java_trust.h"
#include "egress/registration.h"
#include "http/tls.h"

namespace carrel::egress {

namespace {

constexpr char kDirectory[] = "trust";
constexpr char kOwn[] = "ca.crt";
constexpr char kEverybody[] = "ca-certificates.crt";
constexpr char kForJava[] = "cacerts.jks";
constexpr std::size_t kLargestBundle = 16U << 20;

// For everybody to read, whatever the process's mask is. Nobody relies on it after a crash.
Status put(int directory, const char* name, const std::string& text) {
  const std::string fresh = std::string(name) + ".new";
  CARREL_ASSIGN(const UniqueFd file,
                open_at(directory, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644));
  CARREL_TRY(write_all(file.get(), text));
  if (::fchmod(file.get(), 0644) != 0 ||
      ::renameat(directory, fresh.c_str(), directory, name) != 0) {
    return system_error("replace the sandbox's certificates");
  }
  return {};
}

}  // namespace

Result<UniqueFd> make_trust(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(const UniqueFd place, open_registration(home, id));
  if (::mkdirat(place.get(), kDirectory, 0755) != 0 && errno != EEXIST) {
    return system_error("make the directory of the sandbox's certificates");
  }
  CARREL_ASSIGN(UniqueFd made,
                open_at(place.get(), kDirectory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::fchmod(made.get(), 0755) != 0) {
    return system_error("open the directory of the sandbox's certificates to it");
  }
  return open_at(place.get(), kDirectory, O_PATH | O_DIRECTORY | O_NOFOLLOW);
}

std::string trust_path(const storage::Home& home, const std::string& id) {
  return home.path() + "/" + kRegistrations + "/" + id + "/" + kDirectory;
}

bool has_trust(const storage::Home& home, const std::string& id) {
  const std::string path = std::string(kRegistrations) + "/" + id + "/" + kDirectory;
  return ::faccessat(home.directory(), path.c_str(), F_OK, 0) == 0;
}

Status write_trust(const storage::Home& home, const std::string& id,
                   const std::string& certificate) {
  CARREL_ASSIGN(const UniqueFd place, find_registration(home, id));
  CARREL_ASSIGN(const UniqueFd directory,
                open_at(place.get(), kDirectory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  CARREL_ASSIGN(const std::string path, http::authorities_of_this_host());
  CARREL_ASSIGN(std::string all, read_file_at(AT_FDCWD, path, kLargestBundle));
  if (!all.empty() && all.back() != '\n') {
    all += '\n';
  }
  all += certificate;
  CARREL_ASSIGN(const std::string for_java, java_trust_store(all));
  CARREL_TRY(put(directory.get(), kOwn, certificate));
  CARREL_TRY(put(directory.get(), kForJava, for_java));
  return put(directory.get(), kEverybody, all);
}

std::vector<std::string> trust_variables() {
  std::vector<std::string> variables;
  const std::string place = std::string("=") + kTrustTarget + "/";
  for (const char* name :
       {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
        "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE"}) {
    variables.push_back(name + place + kEverybody);
  }
  for (const char* name : {"NODE_EXTRA_CA_CERTS", "DENO_CERT"}) {  // these add to their own
    variables.push_back(name + place + kOwn);
  }
  variables.push_back(std::string("JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStoreType=JKS ") +
                      "-Djavax.net.ssl.trustStore=" + kTrustTarget + "/" + kForJava);
  return variables;
}

}  // namespace carrel::egress
