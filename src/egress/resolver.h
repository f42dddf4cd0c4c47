#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dns/configuration.h"
#include "dns/message.h"
#include "egress/doh.h"
#include "egress/io.h"
#include "egress/loop.h"

namespace carrel::egress {

// Asks the host's resolvers for the addresses of a name. Only a connection that was allowed does.
class Resolver {
 public:
  explicit Resolver(Loop& loop) : loop_(&loop) {}
  // By these settings, whatever the file of the host says.
  Resolver(Loop& loop, dns::Configuration configuration)
      : loop_(&loop), configuration_(std::move(configuration)), follows_file_(false) {}

  // Both families, IPv4 first; kNotFound when there are none, kTimeout when nobody answers. A
  // sandbox may see the message of an error, which says nothing of the host's settings. CRITICAL:
  // the hint may name a server of theirs, and is for the host alone. `server` is asked in place of
  // the host's, and nobody else; a name of its own is looked up there.
  Task<Result<std::vector<policy::IpAddress>>> resolve(
      policy::Host name, std::optional<DohServer> server = std::nullopt);

 private:
  void read_configuration();
  Task<Result<dns::Answer>> ask(SocketAddress server, dns::Lookup lookup, int type);
  Task<Result<dns::Answer>> ask_fully(SocketAddress server, dns::Lookup lookup);
  Task<Result<std::vector<policy::IpAddress>>> ask_all(policy::Host name, dns::RecordType type);
  Task<Result<std::vector<policy::IpAddress>>> ask_doh(policy::Host name, dns::RecordType type,
                                                       DohServer server);
  Task<Result<std::vector<policy::IpAddress>>> ask_either(policy::Host name, dns::RecordType type,
                                                          std::optional<DohServer> server);

  Loop* loop_;
  TlsServers tls_;
  dns::Configuration configuration_;
  std::optional<std::string> seen_;  // the configuration's text
  bool follows_file_ = true;
};

}  // namespace carrel::egress
