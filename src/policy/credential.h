#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/decide.h"
#include "policy/network.h"

// What is added to requests outside of the sandbox, and to which. The grammar is in
// SPECIFICATION.md, its reasons are in docs/decisions/0022-credentials.md.
namespace carrel::policy {

inline constexpr std::size_t kMostCredentials = 64;
inline constexpr std::size_t kLongestSecretName = 64;

// Letters, digits, '-' and '_', and a letter or digit first.
Status check_secret_name(const Given& given);

// `RULE=HEADER: VALUE`: which requests, as in a network's rules but for one name and https alone,
// and the header they get. VALUE has at least one `{{ secret.NAME }}`.
Result<Credential> parse_credential(const Given& given);
// Reads back as the same credential.
std::string credential_text(const Credential& credential);

// The names of the secrets in it.
std::vector<std::string> secrets_of(const Credential& credential);
// The header's value. What `secret` answers is put in as it is, and not read again.
using SecretReader = std::function<Result<std::string>(const std::string& name)>;
Result<std::string> fill_in(const Credential& credential, const SecretReader& secret);

// Whether it is for that server, whatever is asked of it.
bool is_for(const Credential& credential, const Host& host, std::uint16_t port);
// Whether this request gets it. CRITICAL: decided by where the request really goes, over TLS that
// was checked, and by its method and path; what its Host header says is not enough.
bool applies(const Credential& credential, const Flow& flow);

// That each can be used: the policy has its server.
Status check_credentials(const NetworkPolicy& policy);

}  // namespace carrel::policy
