#pragma once

#include "backends/native/launch.h"
#include "base/result.h"
#include "egress/client.h"
#include "egress/registration.h"
#include "policy/spec.h"
#include "storage/home.h"

// What may leave a native sandbox is served by the egress process; this is its side of that.
namespace carrel::native {

inline bool has_network(const policy::Spec& spec) {
  return spec.network.mode != policy::NetworkMode::kNone;
}

// What a description of a sandbox by itself does not tell: that the secrets of its credentials are
// there, and that nothing is mounted where its certificates are.
Status check_network(const storage::Home& home, const policy::Spec& spec);

// Adds the directory of its certificates, if the policy has TLS that the egress process ends.
Status add_trust(const storage::Home& home, const std::string& id, const policy::Spec& spec,
                 std::vector<GivenTree>& trees);

// Writes down which network the sandbox has, before anybody serves it.
Status register_network(const storage::Home& home, const std::string& id,
                        egress::Registration::Kind kind, pid_t guest, const policy::Spec& spec);

// Has the network of a one-shot sandbox served, while its guest boots.
class NetworkOpening {
 public:
  // `guest` is a descriptor of its first process. If its sockets are there, it has not to be told
  // yet what to do.
  static Result<NetworkOpening> begin(const storage::Home& home, const std::string& id, int guest,
                                      egress::HandedSockets handed, const policy::Spec& spec);
  // Waits until it is. CRITICAL: before its command runs.
  Result<egress::Attendance> finish(sandbox::GuestStream& stream) &&;

 private:
  // Whether the egress process needs the guest for it, which then has to be there.
  enum class Sockets { kHanded, kFromGuest };
  NetworkOpening(egress::Attendance attendance, Sockets sockets)
      : attendance_(std::move(attendance)), sockets_(sockets) {}

  egress::Attendance attendance_;
  Sockets sockets_;
};
// The same for a long-lived one, if it has a network; and unless it is served.
Status serve_network(const storage::Home& home, const std::string& id);
Status ensure_network(const storage::Home& home, const std::string& id);

}  // namespace carrel::native
