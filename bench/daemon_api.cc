#include "bench/daemon_api.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <utility>

#include "base/files.h"

namespace carrel::bench {

namespace {

constexpr int kStartTries = 200;
constexpr unsigned kStepUs = 20'000;

}  // namespace

ServedHome::ServedHome(ServedHome&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      socket_(std::move(other.socket_)),
      buffer_(std::move(other.buffer_)) {}

ServedHome::~ServedHome() {
  if (pid_ > 0) {
    socket_.reset();
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
}

Result<ServedHome> ServedHome::start(const Setup& setup, Who who, const std::string& home,
                                     std::vector<std::string> options) {
  options.insert(options.begin(), "serve");
  ServedHome served;
  CARREL_ASSIGN(served.pid_, bench::start(carrel_launch(setup, who, home, std::move(options)), {}));
  const std::string path = home_path(setup, who, home) + "/run/api.sock";
  Status connected;
  for (int i = 0; i < kStartTries; ++i) {
    connected = served.connect(path);
    if (connected.ok()) {
      return served;
    }
    ::usleep(kStepUs);
  }
  return connected.error();
}

Status ServedHome::connect(const std::string& path) {
  socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{Code::kInvalid, 0, "the path of the daemon's socket is too long", {}};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (!socket_.valid() ||
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error("reach the daemon");
  }
  return {};
}

Result<std::string> ServedHome::ask(const std::string& method, const std::string& path,
                                    const std::string& body) {
  std::string request = method + " " + path + " HTTP/1.1\r\nhost: localhost\r\n";
  if (!body.empty()) {
    request +=
        "content-type: application/json\r\ncontent-length: " + std::to_string(body.size()) + "\r\n";
  }
  CARREL_TRY(write_all(socket_.get(), request + "\r\n" + body));
  std::size_t head = std::string::npos;
  std::size_t length = 0;
  while (head == std::string::npos || buffer_.size() < head + 4 + length) {
    char piece[16384];
    const ssize_t size = ::read(socket_.get(), piece, sizeof piece);
    if (size <= 0) {
      return Error{Code::kSystem, 0, "the daemon does not answer", {}};
    }
    buffer_.append(piece, static_cast<std::size_t>(size));
    if (head != std::string::npos) {
      continue;
    }
    head = buffer_.find("\r\n\r\n");
    if (head != std::string::npos) {
      constexpr std::string_view kLength = "\r\ncontent-length: ";
      const std::size_t at = buffer_.find(kLength);
      length = at < head ? std::stoul(buffer_.substr(at + kLength.size())) : 0;
    }
  }
  std::string answer = buffer_.substr(head + 4, length);
  const bool good = buffer_.size() > 9 && buffer_[9] == '2';
  buffer_.erase(0, head + 4 + length);
  if (!good) {
    return Error{Code::kSystem, 0, "the daemon answers: " + answer, {}};
  }
  return answer;
}

Result<nlohmann::json> ServedHome::ask_json(const std::string& method, const std::string& path,
                                            const std::string& body) {
  CARREL_ASSIGN(const std::string text, ask(method, path, body));
  nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return Error{Code::kSystem, 0, "the daemon's answer is malformed", {}};
  }
  return object;
}

Result<long> ServedHome::metric(const std::string& name) {
  CARREL_ASSIGN(const std::string text, ask("GET", "/metrics"));
  const std::string line = "\ncarrel_" + name + " ";
  const std::size_t at = text.find(line);
  if (at == std::string::npos) {
    return Error{Code::kSystem, 0, "the daemon counts no " + name, {}};
  }
  return std::stol(text.substr(at + line.size()));
}

}  // namespace carrel::bench
