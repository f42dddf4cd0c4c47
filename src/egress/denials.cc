#include "egress/denials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "egress/decision_log.h"

namespace carrel::egress {

namespace {

constexpr std::size_t kMostLooked = 1U << 20;
constexpr int kPortOfHttp = 80;
constexpr int kPortOfHttps = 443;

std::string log_path() { return std::string(DecisionLog::kDirectory) + "/" + DecisionLog::kFile; }

// Somebody may put it into a shell: a name or an address has nothing else in it.
bool is_plain_host(std::string_view host) {
  return !host.empty() && host.front() != '-' &&
         host.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") == host.npos;
}

std::string rule_for(const std::string& host, int port) {
  if (!is_plain_host(host)) {
    return {};
  }
  if (port == 0 || port == kPortOfHttps) {
    return host;
  }
  return port == kPortOfHttp ? "http:" + host : "tcp:" + host + ":" + std::to_string(port);
}

}  // namespace

Denials Denials::since_now(int home) {
  Denials now;
  now.home_ = home;
  struct stat info{};
  if (::fstatat(home, log_path().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    now.file_ = info.st_ino;
    now.size_ = static_cast<std::uint64_t>(info.st_size);
  }
  return now;
}

std::optional<Denials::Denied> Denials::first_of(std::string_view sandbox) const {
  auto file = open_at(home_, log_path(), O_RDONLY | O_NOFOLLOW);
  struct stat info{};
  if (!file.ok() || ::fstat(file->get(), &info) != 0) {
    return std::nullopt;
  }
  const std::uint64_t from = info.st_ino == file_ ? size_ : 0;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size <= from) {
    return std::nullopt;
  }
  std::string text(std::min<std::uint64_t>(size - from, kMostLooked), '\0');
  const ssize_t n = ::pread(file->get(), text.data(), text.size(), static_cast<off_t>(from));
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view words(text.data() + at, end - at);
    if (words.find(sandbox) == words.npos) {
      continue;
    }
    const auto line = nlohmann::json::parse(words, nullptr, false);
    if (line.is_object() && line.value("sandbox", "") == sandbox &&
        line.value("verdict", "") == "denied") {
      const std::string host = line.value("host", "");
      const int port = line.value("port", 0);
      return Denied{host + (port == 0 ? "" : ":" + std::to_string(port)), rule_for(host, port)};
    }
  }
  return std::nullopt;
}

}  // namespace carrel::egress
