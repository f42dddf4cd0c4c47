#include "dns/configuration.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/files.h"

namespace carrel::dns {
namespace {

constexpr std::size_t kMostServers = 3;
constexpr std::size_t kMostSearchDomains = 16;
constexpr unsigned kMostDots = 15;
constexpr unsigned kMostSeconds = 30;
constexpr unsigned kMostAttempts = 5;

// The number behind "name:", at most `most`. Nothing: the option is another one.
std::optional<unsigned> number_of(std::string_view option, std::string_view name, unsigned most) {
  if (!option.starts_with(name)) {
    return std::nullopt;
  }
  option.remove_prefix(name.size());
  unsigned number = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), number);
  if (end != option.data() + option.size() || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  return error == std::errc::result_out_of_range ? most : std::min(number, most);
}

void take_option(std::string_view option, Configuration& configuration) {
  if (const auto dots = number_of(option, "ndots:", kMostDots)) {
    configuration.ndots = *dots;
  } else if (const auto seconds = number_of(option, "timeout:", kMostSeconds)) {
    configuration.timeout = std::chrono::seconds(std::max(*seconds, 1U));
  } else if (const auto attempts = number_of(option, "attempts:", kMostAttempts)) {
    configuration.attempts = std::max(*attempts, 1U);
  }
  configuration.rotate |= option == "rotate";
  configuration.use_tcp |= option == "use-vc";
  configuration.no_aaaa |= option == "no-aaaa";
}

void take_server(std::istringstream& words, Configuration& configuration) {
  std::string text;
  words >> text;
  const auto address = Address::parse(text);
  if (address.has_value() && configuration.servers.size() < kMostServers) {
    configuration.servers.push_back({*address});
  }
}

// The last line of its kind counts.
void take_search(std::istringstream& words, std::size_t most, Configuration& configuration) {
  configuration.search.clear();
  for (std::string text; words >> text && configuration.search.size() < most;) {
    auto domain = policy::canonical_host(text);
    if (domain.ok() && domain->is_name()) {
      configuration.search.push_back(std::move(domain.value()));
    }
  }
}

void take_line(const std::string& line, Configuration& configuration) {
  std::istringstream words(line);
  std::string key;
  words >> key;
  if (key == "nameserver") {
    take_server(words, configuration);
  } else if (key == "search" || key == "domain") {
    take_search(words, key == "domain" ? 1 : kMostSearchDomains, configuration);
  } else if (key == "options") {
    for (std::string option; words >> option;) {
      take_option(option, configuration);
    }
  }
}

}  // namespace

std::string Configuration::Server::text() const {
  return port == kPort ? address.ip.text() : policy::endpoint_text(policy::Host(address.ip), port);
}

Configuration parse_configuration(std::string_view text) {
  Configuration configuration;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    take_line(line, configuration);
  }
  if (configuration.servers.empty()) {
    configuration.servers.push_back({*Address::parse("127.0.0.1")});
  }
  return configuration;
}

Configuration read_configuration() {
  const auto text = read_file_at(AT_FDCWD, kConfigurationFile);
  return parse_configuration(text.ok() ? text.value() : "");
}

}  // namespace carrel::dns
