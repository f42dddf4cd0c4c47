#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "dns/configuration.h"
#include "dns/conversation.h"

namespace carrel::dns {

// Finds the addresses of a host for one of our own connections, and blocks until it has them. It
// reads what other programs read, /etc/hosts and /etc/resolv.conf, and keeps nothing.
//
//   auto addresses = resolve("registry.example", {.deadline = deadline, .cancel = cancel});
//
class StubResolver {
 public:
  // `hosts` is a text in the form of hosts(5).
  StubResolver(Configuration configuration, std::string hosts)
      : configuration_(std::move(configuration)), hosts_(std::move(hosts)) {}

  // At least one address, in the order in which they are to be dialled. Addresses, "localhost" and
  // names below it are known without asking anybody. kNotFound: there is no such host, or it has no
  // address; kUnavailable: a server failed; kTimeout: none answered; kGone: cancelled. The message
  // says which, and names host and server.
  [[nodiscard]] Result<std::vector<Address>> resolve(std::string_view host,
                                                     const Patience& patience) const;

 private:
  [[nodiscard]] std::vector<policy::Host> candidates(std::string_view written,
                                                     const policy::Host& name) const;
  [[nodiscard]] Result<std::vector<Address>> ask(const std::vector<policy::Host>& names,
                                                 const Patience& patience) const;

  Configuration configuration_;
  std::string hosts_;
};

// The same with the files of this host as they are now.
Result<std::vector<Address>> resolve(std::string_view host, const Patience& patience);

}  // namespace carrel::dns
