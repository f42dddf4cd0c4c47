#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"

// A server and a client of a few lines, so that what is measured is the way between them.
namespace carrel::bench {

// Listens on a port of its own until it is destroyed, in the network of whoever made it.
class EgressServer {
 public:
  static Result<EgressServer> start(const std::string& address);
  EgressServer(EgressServer&&) = default;
  EgressServer& operator=(EgressServer&&) = default;
  ~EgressServer();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  EgressServer() = default;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

// What the client does, as the words after `carrel_bench --egress-client`: download ADDRESS PORT
// MEBIBYTES, requests ADDRESS PORT COUNT on one connection, or connects ADDRESS PORT COUNT, each
// with one request. Prints the microseconds that it took and returns the exit status.
int be_egress_client(int count, char** words);

}  // namespace carrel::bench
