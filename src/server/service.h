#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/native/nursery.h"
#include "backends/native/one_shot.h"
#include "http/acceptor.h"
#include "http/listener.h"
#include "manager/manager.h"
#include "policy/spec.h"
#include "server/access.h"

namespace carrel::server {

// What has happened since the daemon began, for /metrics.
struct Counters {
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> refused = 0;  // 401 and 403
  std::atomic<std::uint64_t> failed = 0;   // 5xx
  std::atomic<std::uint64_t> commands = 0;
  std::atomic<std::uint64_t> created = 0;
};

// Everything that handlers need, made once by the daemon.
struct Service {
  std::unique_ptr<manager::Manager> manager;
  Access access;
  policy::Spec create_defaults;  // the operator's: nobody with a token gets more
  policy::Spec run_defaults;
  native::OwnNursery nursery;
  std::unique_ptr<native::OneShots> one_shots;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::atomic<bool> stopping = false;
  Counters counters;
};

// Serves one connection until it ends.
void serve_connection(Service& service, UniqueFd& connection, const http::Listener& listener);

}  // namespace carrel::server
