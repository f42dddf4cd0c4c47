#include "verify/canaries.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/files.h"
#include "verify/host_state.h"

namespace carrel::verify {

namespace {

constexpr char kVariable[] = "CARREL_CANARY_TOKEN";

Result<std::string> random_digits(std::size_t bytes) {
  std::string text;
  std::array<unsigned char, 32> data{};
  if (::getrandom(data.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return system_error("get random bytes");
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    constexpr std::string_view kHex = "0123456789abcdef";
    text += kHex[data.at(i) >> 4];
    text += kHex[data.at(i) & 15];
  }
  return text;
}

Result<UniqueFd> listen_unix(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() > sizeof address.sun_path) {
    return Error{Code::kInvalid, 0, "TMPDIR is too long for a socket", "set a shorter one"};
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), 4) != 0) {
    return system_error("listen on a socket");
  }
  return fd;
}

Result<UniqueFd> listen_tcp(const in_addr& on, int& port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = on;
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(fd.get(), 4) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return system_error("listen on a port");
  }
  port = ntohs(address.sin_port);
  return fd;
}

// An address of this host that others can reach it by.
std::string own_address() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) != nullptr) {
      return text.data();
    }
  }
  return {};
}

// Whether somebody called who is on this host: others may call an address of it, too.
bool was_called(int socket, const std::string& own) {
  for (bool called = false;;) {
    sockaddr_in caller{};
    socklen_t size = sizeof caller;
    const UniqueFd visitor(
        ::accept4(socket, reinterpret_cast<sockaddr*>(&caller), &size, SOCK_CLOEXEC));
    if (!visitor.valid()) {
      return called;
    }
    std::array<char, INET_ADDRSTRLEN> text{};
    if (size < sizeof caller || caller.sin_family != AF_INET ||
        ::inet_ntop(AF_INET, &caller.sin_addr, text.data(), text.size()) == nullptr ||
        own.empty() || own == text.data()) {
      called = true;
    }
  }
}

}  // namespace

Result<Canaries> Canaries::plant() {
  Canaries canaries;
  CARREL_ASSIGN(canaries.secret_, random_digits(20));
  CARREL_ASSIGN(canaries.name_, random_digits(8));
  const char* temporary = std::getenv("TMPDIR");
  canaries.folder_ = std::string(temporary != nullptr && *temporary == '/' ? temporary : "/tmp") +
                     "/carrel-verify-" + canaries.name_;
  const std::string socket = canaries.folder_ + "/socket";
  std::vector<std::string> paths = {canaries.folder_ + "/CANARY-" + canaries.name_};
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    paths.push_back(std::string(home) + "/CANARY-carrel-verify-" + canaries.name_);
  }
  std::vector<std::string> litter = paths;
  litter.push_back(socket);
  CARREL_ASSIGN(Janitor janitor, Janitor::start(litter, canaries.folder_));
  canaries.janitor_ = std::make_unique<Janitor>(std::move(janitor));
  if (::mkdir(canaries.folder_.c_str(), 0755) != 0) {
    return system_error("make directory " + canaries.folder_);
  }
  for (const std::string& path : paths) {
    auto file = open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (!file.ok()) {
      if (path == paths.front()) {
        return file.error();
      }
      continue;  // not everybody has a home to write to
    }
    CARREL_TRY(write_all(file.value().get(), canaries.secret_ + "\n"));
    canaries.files_.push_back({path, state_of(path)});
  }
  CARREL_TRY(canaries.listen());
  canaries.leave_open();
  ::setenv(kVariable, canaries.secret_.c_str(), 1);
  return canaries;
}

Status Canaries::listen() {
  const std::string path = folder_ + "/socket";
  CARREL_ASSIGN(UniqueFd abstract, listen_unix(std::string(1, '\0') + mark()));
  listeners_.push_back({"an abstract socket of the host", std::move(abstract)});
  CARREL_ASSIGN(UniqueFd file, listen_unix(path));
  listeners_.push_back({"a socket file of the host", std::move(file)});
  ::chmod(path.c_str(), 0777);
  CARREL_ASSIGN(UniqueFd port, listen_tcp(in_addr{htonl(INADDR_LOOPBACK)}, port_));
  listeners_.push_back({"a port of the host's loopback", std::move(port)});
  address_ = own_address();
  in_addr own{};
  if (::inet_pton(AF_INET, address_.c_str(), &own) == 1) {
    if (auto outer = listen_tcp(own, outer_port_); outer.ok()) {
      listeners_.push_back({"a port of the host's own address", std::move(outer.value())});
      return {};
    }
  }
  address_.clear();
  return {};
}

// For the first process of a sandbox to inherit, if nobody sees to that: a file, and a directory to
// climb out by.
void Canaries::leave_open() {
  for (const int number : {17, 251}) {
    if (::fcntl(number, F_GETFD) >= 0) {
      continue;  // somebody's
    }
    const UniqueFd opened(number == 17 ? ::open(files_.front().path.c_str(), O_RDONLY | O_CLOEXEC)
                                       : ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (::dup2(opened.get(), number) == number) {
      inherited_.emplace_back(number);
    }
  }
}

Canaries::~Canaries() {
  if (janitor_ != nullptr) {
    ::unsetenv(kVariable);
  }
}

std::vector<std::string> Canaries::listeners() const {
  return {"abstract=" + mark(), "path=" + folder_ + "/socket", "tcp=" + std::to_string(port_)};
}

std::vector<std::string> Canaries::addresses() const {
  return address_.empty()
             ? std::vector<std::string>()
             : std::vector<std::string>{"address=" + address_ + ":" + std::to_string(outer_port_)};
}

std::vector<std::string> Canaries::harmed() {
  std::vector<std::string> harm;
  for (File& file : files_) {
    if (const std::string state = state_of(file.path); state != file.state) {
      harm.push_back("the host's file " + file.path + " was changed");
      file.state = state;
    }
  }
  for (const Listener& listener : listeners_) {
    const bool outer = &listener == &listeners_.back() && !address_.empty();
    if (was_called(listener.socket.get(), outer ? address_ : std::string())) {
      harm.push_back(listener.what + " was reached");
    }
  }
  return harm;
}

}  // namespace carrel::verify
