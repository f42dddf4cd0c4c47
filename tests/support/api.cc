#include "support/api.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

using namespace std::chrono_literals;

nlohmann::json ApiAnswer::json() const { return nlohmann::json::parse(body, nullptr, false); }

Daemon::Daemon(As as, std::vector<std::string> options) : as_(as) {
  static std::atomic<int> number = 0;
  log_ = place().work(as) + "/serve." + std::to_string(++number) + ".log";
  Launch launch = place().launch(as, {});
  // Nobody reads its stderr while the test runs.
  launch.arguments = {"-c", "exec \"$0\" serve \"$@\" 2> " + log_, launch.program};
  launch.arguments.insert(launch.arguments.end(), options.begin(), options.end());
  launch.program = "/bin/sh";
  process_ = std::make_unique<Process>(launch);
  const bool began = eventually(10s, [&] {
    const auto text = read_text(log_);
    return text.has_value() && text->find("\n") != std::string::npos;
  });
  EXPECT_TRUE(began) << "the daemon does not begin";
}

Daemon::~Daemon() {
  if (process_ != nullptr) {
    (void)stop();
  }
}

std::string Daemon::socket() const { return place().home(as_) + "/run/api.sock"; }

std::string Daemon::log() const { return read_text(log_).value_or(""); }

int Daemon::port() const {
  const std::string text = log();
  const std::string mark = "\"at\":\"127.0.0.1:";
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? 0 : std::stoi(text.substr(at + mark.size()));
}

void Daemon::kill() {
  process_->send(SIGKILL);
  (void)process_->wait(5s);
  process_.reset();
}

int Daemon::stop() {
  process_->send(SIGTERM);
  return wait(15s);
}

int Daemon::wait(std::chrono::milliseconds patience) {
  const Run run = process_->wait(patience);
  process_.reset();
  EXPECT_FALSE(run.timed_out) << log();
  return run.status;
}

ApiConnection::ApiConnection(const std::string& socket)
    : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

ApiConnection::ApiConnection(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

ApiConnection::~ApiConnection() { close(); }

void ApiConnection::close() {
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

bool ApiConnection::send(const std::string& bytes) const {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t size = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (size <= 0) {
      return false;
    }
    rest.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

bool ApiConnection::fill() {
  pollfd wait{fd_, POLLIN, 0};
  std::vector<char> piece(64U << 10);
  if (::poll(&wait, 1, 60'000) != 1) {
    return false;
  }
  const ssize_t size = ::recv(fd_, piece.data(), piece.size(), 0);
  if (size > 0) {
    buffer_.append(piece.data(), static_cast<std::size_t>(size));
  }
  return size > 0;
}

ApiAnswer ApiConnection::read_answer() {
  ApiAnswer answer;
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill()) {
      return answer;
    }
  }
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
    const std::string line = head.substr(at, head.find("\r\n", at) - at);
    at += line.size() + 2;
    const std::size_t colon = line.find(": ");
    answer.headers[line.substr(0, colon)] = line.substr(colon + 2);
  }
  const int status = std::stoi(head.substr(9, 3));
  if (answer.headers.contains("content-length")) {
    const std::size_t size = std::stoul(answer.headers["content-length"]);
    while (buffer_.size() < size && fill()) {
    }
    answer.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
  } else if (answer.headers.contains("transfer-encoding")) {
    for (;;) {
      std::size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!fill()) {
          return answer;
        }
      }
      const std::size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 4 + size) {
        if (!fill()) {
          return answer;
        }
      }
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 4 + size);
      if (size == 0) {
        break;
      }
    }
  }
  answer.status = status;
  return answer;
}

std::string ApiConnection::read_until(const std::string& text, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (buffer_.find(text) == std::string::npos && std::chrono::steady_clock::now() < end) {
    pollfd wait{fd_, POLLIN, 0};
    if (::poll(&wait, 1, 100) == 1 && !fill()) {
      break;
    }
  }
  return buffer_;
}

bool ApiConnection::ends(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < end) {
    pollfd wait{fd_, POLLIN, 0};
    if (::poll(&wait, 1, 50) == 1 && !fill()) {
      return true;
    }
  }
  return false;
}

std::string request_text(const ApiRequest& request) {
  std::string text =
      request.method + " " + request.path + " HTTP/1.1\r\nhost: " + request.host + "\r\n";
  for (const std::string& header : request.headers) {
    text += header + "\r\n";
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT") {
    text += "content-type: " + request.type +
            "\r\ncontent-length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return text + "\r\n" + request.body;
}

ApiAnswer ask(const std::string& socket, const ApiRequest& request) {
  ApiConnection connection(socket);
  return connection.connected() && connection.send(request_text(request)) ? connection.read_answer()
                                                                          : ApiAnswer();
}

ApiAnswer ask(int port, const ApiRequest& request) {
  ApiConnection connection(port);
  return connection.connected() && connection.send(request_text(request)) ? connection.read_answer()
                                                                          : ApiAnswer();
}

}  // namespace carrel::test
