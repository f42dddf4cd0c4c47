#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/native/nursery.h"
#include "backends/native/one_shot.h"
#include "http/acceptor.h"
#include "http/listener.h"
#include "http/tls_server.h"
#include "manager/manager.h"
#include "policy/spec.h"
#include "server/access.h"
#include "server/admitted.h"
#include "server/alerts.h"
#include "server/traces.h"
#include "server/webhooks.h"

namespace carrel::server {

// What has happened since the daemon began, for /metrics.
struct Counters {
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> refused = 0;          // 401 and 403
  std::atomic<std::uint64_t> refused_at_door = 0;  // of those, the ones about no sandbox
  std::atomic<std::uint64_t> failed = 0;           // 5xx
  std::atomic<std::uint64_t> commands = 0;
  std::atomic<std::uint64_t> created = 0;
};

// Requests of clients that are being served. Nobody but the operator has more than his share.
class RequestsAtOnce {
 public:
  void set_most(std::size_t most) { most_ = most; }
  // False: he has as many as he may.
  bool enter(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    std::size_t& count = counts_[owner];
    if (count >= most_) {
      return false;
    }
    ++count;
    return true;
  }
  void leave(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    if (const auto found = counts_.find(owner); found != counts_.end() && --found->second == 0) {
      counts_.erase(found);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::size_t> counts_;
  std::size_t most_ = 256;
};

// The daemon's certificate, if it has one; another may take its place at any time.
class ServedIdentity {
 public:
  void set(http::TlsIdentity identity) {
    auto next = std::make_shared<const http::TlsIdentity>(std::move(identity));
    const std::lock_guard lock(mutex_);
    identity_ = std::move(next);
  }
  [[nodiscard]] std::shared_ptr<const http::TlsIdentity> get() const {
    const std::lock_guard lock(mutex_);
    return identity_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const http::TlsIdentity> identity_;
};

// Everything that handlers need, made once by the daemon.
struct Service {
  std::unique_ptr<manager::Manager> manager;
  std::uint16_t tcp_port = 0;  // of the first listener on TCP; 0: there is none
  ServedIdentity identity;     // of the listeners on TCP
  Access access;
  Admitted admitted;
  policy::Spec create_defaults;  // the operator's: nobody with a token gets more
  policy::Spec run_defaults;
  native::OwnNursery nursery;
  std::unique_ptr<native::OneShots> one_shots;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::atomic<bool> stopping = false;
  Counters counters;
  RequestsAtOnce requests;
  std::unique_ptr<Webhooks> webhooks;
  std::unique_ptr<Alerts> alerts;
  std::unique_ptr<Traces> traces;
};

// Serves one connection until it ends.
void serve_connection(Service& service, UniqueFd& connection, const http::Listener& listener);

}  // namespace carrel::server
