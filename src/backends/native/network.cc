#include "backends/native/network.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string>

#include "base/files.h"
#include "egress/client.h"
#include "egress/trust.h"
#include "policy/backend.h"
#include "policy/credential.h"
#include "policy/isolation.h"
#include "policy/mount_paths.h"
#include "sandbox/command.h"
#include "storage/box.h"
#include "storage/secrets.h"

namespace carrel::native {

namespace {

constexpr int kBootMs = 30'000;

// The process behind the descriptor.
Result<pid_t> process_of(int pidfd) {
  constexpr std::string_view kKey = "\nPid:\t";
  CARREL_ASSIGN(const std::string text,
                read_file_at(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(pidfd)));
  const std::size_t at = text.find(kKey);
  pid_t pid = 0;
  if (at != std::string::npos) {
    const char* begin = text.data() + at + kKey.size();
    std::from_chars(begin, text.data() + text.size(), pid);
  }
  if (pid <= 0) {
    return Error{Code::kGone, 0, "the sandbox ended while it was made", {}};
  }
  return pid;
}

}  // namespace

Status check_network(const storage::Home& home, const policy::Spec& spec) {
  if (!spec.network.ends_tls()) {
    return {};
  }
  for (const policy::Mount& mount : spec.mounts) {
    if (policy::path_holds(mount.target, egress::kTrustTarget) ||
        policy::path_holds(egress::kTrustTarget, mount.target)) {
      return policy::bad_value({"mount", mount.target},
                               "the certificates for the network's rules are there");
    }
  }
  CARREL_ASSIGN(const storage::Secrets secrets, storage::Secrets::open(home));
  for (const policy::Credential& credential : spec.network.credentials) {
    for (const std::string& name : policy::secrets_of(credential)) {
      CARREL_TRY(secrets.read(name));
    }
  }
  return {};
}

Status add_trust(const storage::Home& home, const std::string& id, const policy::Spec& spec,
                 std::vector<GivenTree>& trees) {
  if (!spec.network.ends_tls()) {
    return {};
  }
  GivenTree tree;
  CARREL_ASSIGN(tree.source, egress::make_trust(home, id));
  tree.path = egress::trust_path(home, id);
  tree.target = egress::kTrustTarget;
  tree.owner = {::geteuid(), ::getegid()};
  trees.push_back(std::move(tree));
  return {};
}

namespace {

egress::Registration::Way way_of(const policy::Spec& spec) {
  using Way = egress::Registration::Way;
  if (policy::is_machine_by_engine(spec.backend, spec.runtime)) {
    return Way::kPorter;
  }
  switch (policy::isolation_of(spec.backend, spec.runtime).strength) {
    case policy::Strength::kVm:
      return Way::kPorter;
    case policy::Strength::kGvisor:
      return Way::kPorch;
    case policy::Strength::kNamespace:
      break;
  }
  return Way::kSockets;
}

}  // namespace

Status register_network(const storage::Home& home, const std::string& id,
                        egress::Registration::Kind kind, pid_t guest, const policy::Spec& spec) {
  egress::Registration registration;
  registration.id = id;
  registration.kind = kind;
  registration.way = way_of(spec);
  registration.pid = guest;
  registration.start_time = storage::start_time_of(guest);
  registration.policy = spec.network;
  return egress::write_registration(home, registration);
}

Result<NetworkOpening> NetworkOpening::begin(const storage::Home& home, const std::string& id,
                                             int guest, egress::HandedSockets handed,
                                             const policy::Spec& spec) {
  CARREL_ASSIGN(const pid_t process, process_of(guest));
  CARREL_TRY(register_network(home, id, egress::Registration::Kind::kOneShot, process, spec));
  const Sockets sockets = handed.descriptors.empty() ? Sockets::kFromGuest : Sockets::kHanded;
  CARREL_ASSIGN(egress::Attendance attendance,
                egress::Attendance::begin(home, id, guest, std::move(handed)));
  return NetworkOpening(std::move(attendance), sockets);
}

Result<egress::Attendance> NetworkOpening::finish(sandbox::GuestStream& stream) && {
  if (sockets_ == Sockets::kFromGuest) {
    CARREL_TRY(sandbox::await_guest(stream, kBootMs));
  }
  CARREL_TRY(attendance_.finish());
  return std::move(attendance_);
}

Status serve_network(const storage::Home& home, const std::string& id) {
  return egress::is_registered(home, id) ? egress::revive(home, id) : Status();
}

Status ensure_network(const storage::Home& home, const std::string& id) {
  return egress::is_registered(home, id) ? egress::ensure(home, id) : Status();
}

}  // namespace carrel::native
