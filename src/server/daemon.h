#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "manager/quota.h"
#include "policy/spec.h"
#include "server/webhooks.h"

namespace carrel::server {

struct DaemonOptions {
  std::vector<std::string> listen;  // "unix:PATH" or "tcp:HOST:PORT"; none: the home's own socket
  std::string token_file;           // empty: none
  std::string certificate_file;     // of the listeners on TCP; empty: they are not encrypted
  std::string key_file;
  std::vector<std::string> hosts;  // names by which it may be called over TCP
  std::optional<std::chrono::seconds> idle_exit;
  std::size_t most_sandboxes = 100;
  std::size_t most_connections = 512;
  std::optional<std::size_t> warm;  // sandboxes that are kept ready; none: as this host is
  manager::Reserve reserve = {128U << 20, 256U << 20};
  Webhooks::Options webhook;
  std::string otlp;  // where traces go; empty: nowhere
  policy::Spec create_defaults;
  policy::Spec run_defaults;
};

// Runs the daemon until it is told to stop. Sandboxes stay.
Status run_daemon(const DaemonOptions& options);

}  // namespace carrel::server
