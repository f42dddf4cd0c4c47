#include "dns/stub_resolver.h"

#include <fcntl.h>

#include <algorithm>
#include <optional>

#include "base/files.h"
#include "dns/dial_order.h"
#include "dns/hosts_file.h"

namespace carrel::dns {
namespace {

Error about(std::string_view host, Error error) {
  error.message = "look up '" + std::string(host) + "': " + error.message;
  return error;
}

// What nobody has to be asked for (RFC 6761).
std::optional<std::vector<Address>> known_addresses(std::string_view host) {
  if (const auto literal = Address::parse(host)) {
    return std::vector<Address>{*literal};
  }
  const auto name = policy::canonical_host(host);
  if (name.ok() &&
      (name.value().text() == "localhost" || name.value().text().ends_with(".localhost"))) {
    return std::vector<Address>{*Address::parse("127.0.0.1"), *Address::parse("::1")};
  }
  return std::nullopt;
}

Error not_found(std::string what) { return {Code::kNotFound, 0, std::move(what), {}}; }

}  // namespace

// A name with enough dots is tried as it is before the search list, another one behind it. One that
// ends in a dot is complete.
std::vector<policy::Host> StubResolver::candidates(std::string_view written,
                                                   const policy::Host& name) const {
  if (written.ends_with('.')) {
    return {name};
  }
  std::vector<policy::Host> names;
  for (const policy::Host& domain : configuration_.search) {
    auto longer = policy::canonical_host(name.text() + "." + domain.text());
    if (longer.ok()) {
      names.push_back(std::move(longer.value()));
    }
  }
  const auto dots = std::count(written.begin(), written.end(), '.');
  const bool as_it_is_first = dots >= static_cast<std::ptrdiff_t>(configuration_.ndots);
  names.insert(as_it_is_first ? names.begin() : names.end(), name);
  return names;
}

Result<std::vector<Address>> StubResolver::ask(const std::vector<policy::Host>& names,
                                               const Patience& patience) const {
  Error failure = not_found("there is no such host");
  for (const policy::Host& name : names) {
    CARREL_ASSIGN(const Finding finding, Conversation(configuration_, name).run(patience));
    if (finding.kind == Finding::Kind::kAddresses) {
      return order_for_dialling(finding.addresses);
    }
    if (finding.kind == Finding::Kind::kServerFailure) {
      failure = {Code::kUnavailable, 0, finding.failure, "it may work later"};
    } else if (finding.kind == Finding::Kind::kNoAddress && failure.code == Code::kNotFound) {
      failure = not_found("the host has neither an IPv4 nor an IPv6 address");
    }
  }
  return failure;
}

Result<std::vector<Address>> StubResolver::resolve(std::string_view host,
                                                   const Patience& patience) const {
  if (auto known = known_addresses(host)) {
    return std::move(*known);
  }
  const auto name = policy::canonical_host(host);
  if (!name.ok()) {
    return about(host, name.error());
  }
  const std::vector<Address> listed = find_in_hosts(hosts_, name.value());
  if (!listed.empty()) {
    return order_for_dialling(listed);
  }
  auto found = ask(candidates(host, name.value()), patience);
  return found.ok() ? std::move(found) : about(host, std::move(found.error()));
}

Result<std::vector<Address>> resolve(std::string_view host, const Patience& patience) {
  if (auto known = known_addresses(host)) {
    return std::move(*known);
  }
  auto hosts = read_file_at(AT_FDCWD, kHostsFile, kLargestHostsFile);
  if (!hosts.ok() && hosts.error().code == Code::kResource) {
    return about(host, std::move(hosts.error()));
  }
  return StubResolver(read_configuration(), hosts.ok() ? std::move(hosts.value()) : "")
      .resolve(host, patience);
}

}  // namespace carrel::dns
