#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "policy/network.h"

namespace carrel::policy {

// What a connection's first bytes, or one request on it, say.
struct TlsHello {
  // kHere: each request in it is going to be decided on.
  enum class End { kServer, kHere };
  std::optional<Host> name;  // the server's name in it (SNI)
  End end = End::kServer;
};
struct HttpRequest {
  enum class Over { kPlain, kTls };  // kTls: we ended the TLS and have checked its name
  Over over = Over::kPlain;
  std::string method;
  Host host;  // of the Host header or the absolute target
  std::uint16_t port = 80;
  std::string path;  // as it is forwarded, without the query
};
struct OpaqueBytes {};
using Evidence = std::variant<std::monostate, TlsHello, HttpRequest, OpaqueBytes>;

// `host` is what the client meant: the name behind the synthetic address, or the literal address.
struct Flow {
  Host host;
  std::uint16_t port = 0;
  Evidence evidence;  // nothing yet: std::monostate
};

struct Verdict {
  enum class Outcome {
    kAllowed,
    kDenied,
    kNeedsEvidence,  // depends on the first bytes: read them, and ask again
    kNeedsRequests,  // TLS, but a rule has methods or a path, or there is a credential for the
                     // server: end the TLS, and ask again for each request
  };
  Outcome outcome = Outcome::kDenied;
  std::string rule;    // the text of the rule that decided; empty: none did
  std::string reason;  // a sentence without a full stop
  std::string hint;    // what to do about a denial; can be empty

  [[nodiscard]] bool allowed() const { return outcome == Outcome::kAllowed; }
  [[nodiscard]] bool denied() const { return outcome == Outcome::kDenied; }
};

// The one decision about a flow. Deny beats allow. Pure: the same answer to the same question.
Verdict decide(const NetworkPolicy& policy, const Flow& flow);

// Whether some connection to the name could be allowed, so that it gets an address.
Verdict may_resolve(const NetworkPolicy& policy, const Host& name);

// The last check before a connection that decide() did not deny is made to `address`, which is the
// host itself or what its name resolved to. CRITICAL: an address that is not public, or is one of
// the host's `own`, is dialled only if a rule lists it: metadata services, loopback and own
// addresses by itself, others by itself or by a prefix that holds it.
Verdict may_dial(const NetworkPolicy& policy, const Flow& flow, const IpAddress& address,
                 std::span<const IpAddress> own);

}  // namespace carrel::policy
