#include "backends/docker/docker.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "backends/docker/call.h"
#include "backends/docker/comparison.h"
#include "backends/docker/container.h"
#include "backends/docker/door.h"
#include "backends/docker/engine.h"
#include "backends/docker/making.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "policy/known_flaws.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kEndOfTar = 1024;  // an archive with nothing in it

// Those that have a kernel of their own let no socket of the host's in.
bool shares_kernel(const std::string& runtime) {
  return !runtime.starts_with("runsc") && !runtime.starts_with("kata") &&
         runtime.find("gvisor") == std::string::npos;
}

Result<std::string> choose_runtime(const std::string& wanted, const Facts& facts) {
  const std::string runtime = wanted.empty() ? facts.usual_runtime : wanted;
  CARREL_TRY(check_runtime(runtime, facts));
  if (!shares_kernel(runtime)) {
    return unsupported("the runtime '" + runtime +
                           "' of the Docker engine has a kernel of its own, whose rooms this "
                           "version does not furnish unless it is named",
                       "use --runtime runc, --runtime runsc for gVisor, or --runtime kata");
  }
  return runtime;
}

}  // namespace

Result<std::string> Containers::describe(const policy::Spec& spec) const {
  CARREL_ASSIGN(const Facts facts, engines().facts(address_of(spec.engine)));
  CARREL_TRY(check_engine(facts));
  CARREL_ASSIGN(const std::string runtime, choose_runtime(spec.runtime, facts));
  return (facts.kind == EngineKind::kPodman ? "podman " : "docker ") + facts.version + " with " +
         runtime + (runtime == "runc" && !facts.runc.empty() ? " " + facts.runc : "");
}

std::string Containers::warning(const policy::Spec& spec) const {
  auto facts = engines().facts(address_of(spec.engine));
  if (!facts.ok()) {
    return {};
  }
  std::string text = policy::flaw_warning({.reported = "dockerd " + facts->version});
  const std::string runtime = spec.runtime.empty() ? facts->usual_runtime : spec.runtime;
  if (runtime == "runc" && !facts->runc.empty()) {
    const std::string below = policy::flaw_warning({.reported = "runc " + facts->runc});
    text += (text.empty() || below.empty() ? "" : "; ") + below;
  }
  return text;
}

sandbox::LimitHolders Containers::limit_holders(const policy::Spec& spec) const {
  auto facts = engines().facts(address_of(spec.engine));
  if (!facts.ok()) {
    return {{}, {}, {}, facts.error().message};
  }
  const LimitsHeld held = facts->limits();
  constexpr char kEngine[] = "docker";
  return {held.memory ? kEngine : "", held.cpu ? kEngine : "", held.pids ? kEngine : "",
          held.memory && held.cpu && held.pids
              ? ""
              : "the rootless engine has no control groups for it"};
}

Result<sandbox::RoomStarted> Containers::start_at(const Engine& engine, const std::string& address,
                                                  const sandbox::RoomRequest& request) const {
  CARREL_ASSIGN(const Facts facts, engines().facts(address));
  CARREL_TRY(check_engine(facts));
  CARREL_TRY(sweep_forgotten(engine, request.folder, request.installation));
  CARREL_ASSIGN(Door door, Door::open(request.folder, request.id, address, request.image));
  ContainerTerms terms;
  CARREL_ASSIGN(terms.runtime, choose_runtime(request.runtime, facts));
  terms.image = std::string(kImageName) + ":" + request.installation;
  terms.program = door.program();
  terms.door = door.socket();
  const uid_t user = request.host_id.value_or(::geteuid());
  const gid_t group = request.host_id.value_or(::getegid());
  terms.ids =
      facts.rootless() && facts.kind == EngineKind::kDocker ? Ids::kOwnersRoot : Ids::kHosts;
  terms.user = terms.ids == Ids::kOwnersRoot ? 0 : user;
  terms.group = terms.ids == Ids::kOwnersRoot ? 0 : group;
  terms.limits = facts.limits();
  terms.security = facts.security;
  terms.cpus = facts.cpus;
  terms.kind = facts.kind;
  constexpr rlim_t kMostProcesses = 32'768;
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  terms.open_files = limit.rlim_max;
  (void)::getrlimit(RLIMIT_NPROC, &limit);
  terms.processes = std::min(limit.rlim_max, kMostProcesses);
  CARREL_ASSIGN(const Json asked, container_for(request, terms, exists));
  const std::string nothing(kEndOfTar, '\0');
  CARREL_ASSIGN(std::string id,
                create(engine, request, asked, request.installation, nothing, door));
  Container container(engine, std::move(id), door);
  CARREL_TRY(container.start());
  CARREL_ASSIGN(Door::Caller caller, await_call(engine, container.id(), door));
  CARREL_ASSIGN(const Json found, engine.inspect(container.id()));
  // CRITICAL: neither side is believed alone, and the guest is told nothing before.
  CARREL_TRY(
      compare(asked, facts.kind == EngineKind::kPodman ? in_dockers_words(asked, found) : found));
  if (caller.pid <= 0 || first_process_of(found) != caller.pid) {
    return unsupported(
        "Failed to create sandbox: cannot rely on these walls: it is not the "
        "container's first process that called",
        "use an engine on this host, in the same PID namespace");
  }
  // CRITICAL: whatever its id is called inside, on this host it has the one that it is to have.
  if (caller.user != user || caller.group != group) {
    return unsupported(
        "Failed to create sandbox: cannot rely on these walls: the container's user "
        "is " +
            std::to_string(caller.user) + ":" + std::to_string(caller.group) +
            " on this host, and not " + std::to_string(user) + ":" + std::to_string(group),
        "run 'carrel doctor'");
  }
  sandbox::RoomStarted room;
  CARREL_ASSIGN(room.guest_process, receive_guest(caller.stream.get()));
  CARREL_TRY(check_apart(caller.pid, facts.kind, terms.ids));
  room.guest = pid_of(room.guest_process.get());
  if (room.guest <= 0) {
    return Error{Code::kGone, 0, "Failed to create sandbox: its container ended", {}};
  }
  // CRITICAL: it still waits for its program. Later, what it had forked would stay outside.
  if (request.group >= 0) {
    CARREL_TRY(write_value_at(request.group, "cgroup.procs", std::to_string(room.guest)));
  }
  const std::array<int, 1> image = {request.image};
  if (send_with(caller.stream.get(), "g", image, MSG_NOSIGNAL) != 1) {
    return system_error("start the sandbox's first process");
  }
  room.stream = std::move(caller.stream);
  container.keep();
  return room;
}

}  // namespace carrel::docker
