#pragma once

#include "backends/native/launch.h"
#include "base/result.h"
#include "egress/registration.h"
#include "policy/spec.h"
#include "storage/home.h"

// What may leave a native sandbox is served by the egress process; this is its side of that.
namespace carrel::native {

inline bool has_network(const policy::Spec& spec) {
  return spec.network.mode != policy::NetworkMode::kNone;
}

// kUnavailable for rules that are not built yet.
Status check_network(const policy::Spec& spec);

// Writes down which network the sandbox has, before anybody serves it.
Status register_network(const storage::Home& home, const std::string& id,
                        egress::Registration::Kind kind, pid_t guest, const policy::Spec& spec);

// Has the network of a one-shot sandbox served. CRITICAL: before its command runs.
Status open_network(const storage::Home& home, Launched& launched, const policy::Spec& spec);
// The same for a long-lived one, if it has a network; and if nobody serves any.
Status serve_network(const storage::Home& home, const std::string& id);
Status ensure_network(const storage::Home& home, const std::string& id);

}  // namespace carrel::native
