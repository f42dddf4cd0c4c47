#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// Where the host's apt gets its packages from, in both of the formats of its files: lines
// ("deb [signed-by=KEY] URI SUITE COMPONENT...") and stanzas ("URIs: ...").
struct AptSource {
  std::vector<std::string> uris;
  std::vector<std::string> suites;
  std::vector<std::string> components;
  std::string signed_by;  // a path; empty: whatever apt trusts
};

// Sources of binary packages that are switched on; what makes no sense is left out.
std::vector<AptSource> parse_apt_lines(std::string_view text);
std::vector<AptSource> parse_apt_stanzas(std::string_view text);

// Those in /etc/apt of this host.
std::vector<AptSource> read_apt_sources();

// One line for each source of a release of Debian: its own, its updates and its security updates.
// Where the host has another release, its mirror is asked for this one. None: the host has no
// source that would do.
std::vector<std::string> lines_for_suite(const std::vector<AptSource>& sources,
                                         const std::string& suite);

// The directories of this host that are sources (file:, copy:).
std::vector<std::string> local_mirrors(const std::vector<AptSource>& sources);

}  // namespace carrel::storage
