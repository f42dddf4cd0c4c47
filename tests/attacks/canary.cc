#include "attacks/canary.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "support/host.h"
#include "support/place.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;

std::string random_text(std::size_t digits) {
  std::string text;
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  for (std::size_t i = 0; i < digits; ++i) {
    text += "0123456789abcdef"[bytes[i % bytes.size()] >> (i < bytes.size() ? 0 : 4) & 15];
  }
  return text;
}

std::string state_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return "missing";
  }
  return read_text(path).value_or("unreadable") + "|" + std::to_string(info.st_ino) + "|" +
         std::to_string(info.st_mode) + "|" + std::to_string(info.st_size) + "|" +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec) + "|" +
         std::to_string(info.st_ctim.tv_nsec);
}

int listen_unix(const std::string& name) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ::memcpy(address.sun_path, name.data(), std::min(name.size(), sizeof address.sun_path));
  const auto size = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + name.size());
  if (::bind(fd, reinterpret_cast<const struct sockaddr*>(&address), size) != 0 ||
      ::listen(fd, 4) != 0) {
    std::perror("a canary's socket");
    std::abort();
  }
  return fd;
}

int listen_tcp(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<const struct sockaddr*>(&address), size) != 0 ||
      ::listen(fd, 4) != 0 ||
      ::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &size) != 0) {
    std::perror("a canary's port");
    std::abort();
  }
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

Canaries::Canaries(const std::string& directory)
    : secret_(random_text(40)), name_(random_text(12)), socket_path_(directory + "/c.sock") {
  std::vector<std::string> places = {directory};
  if (::geteuid() == 0) {
    places.emplace_back("/root");
    if (const struct passwd* user = ::getpwuid(Place::user_id()); user != nullptr) {
      const std::string home = user->pw_dir;
      for (const std::string& folder : {home, home + "/.ssh"}) {
        std::error_code ignored;
        if (fs::create_directories(folder, ignored)) {
          place().give(folder, As::kUser);
        }
        places.push_back(folder);
      }
    }
  }
  for (const std::string& folder : places) {
    const std::string base = folder.ends_with("/.ssh") ? "/id_canary-" : "/CANARY-";
    files_.push_back({folder + base + name_, {}});
    write_text(files_.back().path, secret_ + "\n");
    files_.back().state = state_of(files_.back().path);
  }
  // Left open for the program to inherit: a file, and a directory to climb out by.
  const int file = ::open(files_.front().path.c_str(), O_RDONLY);
  const int root = ::open("/", O_RDONLY | O_DIRECTORY);
  inherited_ = {file, root};
  for (const int number : {17, 251, 900}) {
    inherited_.push_back(::dup2(number == 251 ? root : file, number));
  }
  listening_.emplace_back("the abstract socket", listen_unix(std::string(1, '\0') + name_));
  listening_.emplace_back("the socket file", listen_unix(socket_path_));
  ::chmod(socket_path_.c_str(), 0777);
  listening_.emplace_back("the port", listen_tcp(port_));
}

Canaries::~Canaries() {
  for (const File& file : files_) {
    ::unlink(file.path.c_str());
  }
  ::unlink(socket_path_.c_str());
  for (const int fd : inherited_) {
    ::close(fd);
  }
  for (const auto& [what, fd] : listening_) {
    ::close(fd);
  }
}

std::vector<std::string> Canaries::listeners() const {
  return {"abstract=" + name_, "path=" + socket_path_, "tcp=" + std::to_string(port_)};
}

std::string Canaries::harmed() const {
  std::string text;
  for (const File& file : files_) {
    if (state_of(file.path) != file.state) {
      text += file.path + " was changed\n";
    }
  }
  for (const auto& [what, fd] : listening_) {
    const int visitor = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (visitor >= 0 || errno != EAGAIN) {
      text += what + " was reached\n";
    }
  }
  return text;
}

std::map<std::string, std::string> host_state() {
  std::map<std::string, std::string> state;
  for (const char* path : {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
                           "/sys/kernel/uevent_helper", "/proc/sys/kernel/hostname"}) {
    state[path] = read_text(path).value_or("missing");
  }
  for (const char* path : {"/etc/passwd", "/etc/shadow", "/usr/bin/env", "/etc/ld.so.cache"}) {
    state[path] = state_of(path);
  }
  // The modules by name: how often each is used changes by itself.
  const std::string modules = read_text("/proc/modules").value_or("");
  for (std::size_t at = 0; at < modules.size();) {
    const std::size_t end = std::min(modules.find('\n', at), modules.size());
    state["modules"] += modules.substr(at, modules.find(' ', at) - at) + "\n";
    at = end + 1;
  }
  return state;
}

}  // namespace carrel::test
