#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"

// What a sandbox whose TLS is ended by the egress process has to trust: a directory of its
// registration that it sees, read-only, at kTrustTarget. The next egress process has another
// authority, and replaces what is in it.
namespace carrel::egress {

inline constexpr char kTrustTarget[] = "/run/carrel";

// Makes the directory, empty. Its path is below the home's.
Result<UniqueFd> make_trust(const storage::Home& home, const std::string& id);
std::string trust_path(const storage::Home& home, const std::string& id);
// Whether the sandbox was made with one.
bool has_trust(const storage::Home& home, const std::string& id);
// Writes the authority's certificate, by itself and after those that the host trusts.
Status write_trust(const storage::Home& home, const std::string& id,
                   const std::string& certificate);

// NAME=VALUE of what programs look at to know whom to trust.
std::vector<std::string> trust_variables();

}  // namespace carrel::egress
