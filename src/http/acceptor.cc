#include "http/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

namespace carrel::http {
namespace {

constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    "connection: close\r\n\r\n";
constexpr std::chrono::milliseconds kLinger{500};
constexpr int kStepMs = 10;

// The end of an answer gets lost if its connection is closed while there is something to read: so
// what still comes is read for a moment.
void close_gently(UniqueFd& connection) {
  if (!connection.valid() || ::shutdown(connection.get(), SHUT_WR) != 0) {
    return;
  }
  const auto end = std::chrono::steady_clock::now() + kLinger;
  char piece[4096];
  for (;;) {
    const ssize_t size = ::recv(connection.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
      return;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wait{connection.get(), POLLIN, 0};
    if (left.count() <= 0 || (size < 0 && ::poll(&wait, 1, static_cast<int>(left.count())) == 0)) {
      return;
    }
  }
}

}  // namespace

struct Acceptor::Visit {
  Acceptor* acceptor;
  const Listener* listener;
  UniqueFd connection;
};

Acceptor::Acceptor(const std::vector<Listener>& listeners, Handler handler, Options options)
    : listeners_(listeners), handler_(std::move(handler)), options_(options) {}

void* Acceptor::run(void* pointer) {
  const std::unique_ptr<Visit> visit(static_cast<Visit*>(pointer));
  Acceptor& acceptor = *visit->acceptor;
  acceptor.handler_(visit->connection, *visit->listener);
  close_gently(visit->connection);
  visit->connection.reset();
  acceptor.leave();
  return nullptr;
}

void Acceptor::leave() {
  const std::lock_guard lock(mutex_);
  --open_;
  last_left_ = std::chrono::steady_clock::now();
}

void Acceptor::accept_one(const Listener& listener) {
  UniqueFd connection(
      ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      ::poll(nullptr, 0, 50);  // it stays readable
    }
    return;
  }
  if (listener.kind == Listener::Kind::kTcp) {
    const int on = 1;
    (void)::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  {
    const std::lock_guard lock(mutex_);
    if (open_ >= options_.most) {
      (void)::send(connection.get(), kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
    ++open_;
  }
  auto visit = std::make_unique<Visit>(Visit{this, &listener, std::move(connection)});
  pthread_attr_t attributes;
  pthread_t thread{};
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, options_.stack);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const int made = ::pthread_create(&thread, &attributes, run, visit.get());
  ::pthread_attr_destroy(&attributes);
  if (made == 0) {
    (void)visit.release();  // the thread's
    return;
  }
  (void)::send(visit->connection.get(), kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  leave();
}

Status Acceptor::accept_some(int wake, std::chrono::milliseconds patience) {
  std::vector<pollfd> waits;
  for (const Listener& listener : listeners_) {
    waits.push_back({listener.socket.get(), POLLIN, 0});
  }
  waits.push_back({wake, POLLIN, 0});
  const int ready = ::poll(waits.data(), waits.size(), static_cast<int>(patience.count()));
  if (ready < 0 && errno != EINTR) {
    return system_error("wait for connections");
  }
  for (std::size_t i = 0; ready > 0 && i < listeners_.size(); ++i) {
    if (waits[i].revents != 0) {
      accept_one(listeners_[i]);
    }
  }
  return {};
}

std::size_t Acceptor::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

std::chrono::steady_clock::time_point Acceptor::idle_since() const {
  const std::lock_guard lock(mutex_);
  return open_ > 0 ? std::chrono::steady_clock::now() : last_left_;
}

bool Acceptor::await_all(std::chrono::milliseconds patience) const {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (open() > 0 && std::chrono::steady_clock::now() < end) {
    ::poll(nullptr, 0, kStepMs);
  }
  return open() == 0;
}

}  // namespace carrel::http
