#include "backends/docker/gvisor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "backends/docker/anchor.h"
#include "backends/docker/call.h"
#include "backends/docker/comparison.h"
#include "backends/docker/container.h"
#include "backends/docker/layout.h"
#include "base/sha256.h"
#include "guest/contained.h"
#include "policy/mount_paths.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;

constexpr char kOtherWalls[] = "use --backend oci --runtime runsc";

Status check_facts(const Facts& facts, const std::string& runtime) {
  if (facts.kind == EngineKind::kPodman) {
    return unsupported("gVisor is not used through podman", "use --backend oci --runtime runsc");
  }
  if (facts.rootless()) {
    return unsupported("gVisor is not used through a rootless engine", kOtherWalls);
  }
  CARREL_TRY(check_engine(facts));
  return check_runtime(runtime, facts);
}

Error shut_out(const std::string& runtime) {
  return unsupported("Failed to create sandbox: the runtime '" + runtime +
                         "' of the Docker engine lets nobody behind gVisor reach a socket of the "
                         "host's",
                     "add \"--host-uds=open\" to its runtimeArgs in the engine's daemon.json");
}

bool same_file(int one, int other) {
  struct stat here{};
  struct stat there{};
  return ::fstat(one, &here) == 0 && ::fstat(other, &there) == 0 && here.st_dev == there.st_dev &&
         here.st_ino == there.st_ino;
}

// CRITICAL: an engine mounts what it finds at a path, and nobody behind gVisor can compare that
// with what was judged. As root it is compared from outside (check_trees); for anybody else only
// what nobody in a sandbox can replace is given.
Status check_given(const sandbox::RoomRequest& request) {
  const std::string home = request.folder.substr(0, request.folder.rfind('/'));
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    if (::geteuid() != 0 && !policy::path_holds(home, tree.path)) {
      return unsupported("with gVisor behind an engine only root can give '" + tree.path +
                             "': nobody else can see what the engine mounts",
                         kOtherWalls);
    }
    // A workspace of root's is a disk that is mounted nowhere, and so is an overlay.
    struct stat meant{};
    struct stat placed{};
    if (::fstat(tree.source, &meant) != 0 || ::stat(tree.path.c_str(), &placed) != 0 ||
        meant.st_dev != placed.st_dev || meant.st_ino != placed.st_ino ||
        (tree.mount >= 0 && !same_file(tree.mount, tree.source))) {
      return unsupported(
          "with gVisor behind an engine a sandbox can have only what has a place in "
          "the host's tree: '" +
              tree.path + "' has none",
          kOtherWalls);
    }
    if (tree.mount >= 0 && meant.st_uid != 0) {
      return unsupported(
          "with gVisor behind an engine a sandbox of root's can have only what is "
          "root's: '" +
              tree.path + "' is somebody else's",
          kOtherWalls);
    }
  }
  return {};
}

// What the file server of the container has at the places of the trees.
Status check_trees(const sandbox::RoomRequest& request, const Layout& layout, pid_t server) {
  if (::geteuid() != 0) {
    return {};
  }
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    for (const Layout::Mount& mount : layout.mounts) {
      struct stat meant{};
      struct stat found{};
      const std::string place = "/proc/" + std::to_string(server) + "/root" + mount.target;
      if (!mount.made && mount.source == tree.path &&
          (::fstat(tree.source, &meant) != 0 || ::stat(place.c_str(), &found) != 0 ||
           meant.st_dev != found.st_dev || meant.st_ino != found.st_ino)) {
        return Error{Code::kConflict, 0, "'" + tree.path + "' was replaced meanwhile", {}};
      }
    }
  }
  return {};
}

}  // namespace

std::uint32_t GvisorContainers::own_processes() const { return 2; }

sandbox::LimitHolders GvisorContainers::limit_holders(const policy::Spec& spec) const {
  (void)spec;
  return {"docker", "docker", "docker", {}};
}

Result<std::string> GvisorContainers::describe(const policy::Spec& spec) const {
  CARREL_ASSIGN(const Facts facts, engines().facts(address_of(spec.engine)));
  CARREL_TRY(check_facts(facts, spec.runtime));
  return "docker " + facts.version + " with " + spec.runtime;
}

Status GvisorContainers::check(const policy::Spec& spec) const {
  if (spec.network.mode != policy::NetworkMode::kNone) {
    // The engine makes the network, and its settings for runsc say whose sockets gVisor uses.
    return unsupported(
        "a sandbox behind gVisor in a container has no network: what an engine gives runsc cannot "
        "be made captive",
        kOtherWalls);
  }
  if (spec.root_mode != policy::RootMode::kReadOnly) {
    return unsupported("the root of a sandbox behind gVisor is read-only",
                       "leave out --writable-root");
  }
  return EngineWalls::check(spec);
}

Result<sandbox::RoomStarted> GvisorContainers::start_at(const Engine& engine,
                                                        const std::string& address,
                                                        const sandbox::RoomRequest& request) const {
  CARREL_ASSIGN(const Facts facts, engines().facts(address));
  CARREL_TRY(check_facts(facts, request.runtime));
  CARREL_TRY(check_given(request));
  CARREL_TRY(sweep_forgotten(engine, request.folder, request.installation));
  CARREL_ASSIGN(Door door, Door::open(request.folder, request.id, address, request.image));
  ContainerTerms terms;
  // The caller's own id: his files are his inside, too, and root's are root's, without a
  // capability.
  terms.user = ::geteuid();
  terms.group = ::getegid();
  CARREL_ASSIGN(const Layout layout, layout_for(request, terms.user, terms.group, exists));
  CARREL_TRY(door.furnish(layout));
  constexpr std::size_t kTag = 16;
  const std::string tag = request.installation + "-" + sha256(layout.image).substr(0, kTag);
  terms.runtime = request.runtime;
  terms.image = std::string(kImageName) + ":" + tag;
  terms.program = door.program();
  terms.door = door.socket();
  terms.cpus = facts.cpus;
  CARREL_ASSIGN(const Json asked, furnished_container(request, terms, layout, door.place()));
  CARREL_ASSIGN(std::string id, create(engine, request, asked, tag, layout.image, door));
  Container container(engine, std::move(id), door);
  if (Status started = container.start(); !started.ok()) {
    Error error = started.error();
    // One that shuts these out refuses to mount the socket at all.
    if (error.message.find(guest::kDoor) != std::string::npos) {
      return shut_out(request.runtime);
    }
    if (error.message.find("root network namespace") != std::string::npos) {
      error.hint = "add \"--network=none\" to its runtimeArgs in the engine's daemon.json";
    }
    return error;
  }
  auto caller = await_call(engine, container.id(), door);
  if (!caller.ok()) {
    return caller.error().code == Code::kUnsupported ? shut_out(request.runtime) : caller.error();
  }
  CARREL_ASSIGN(const Json found, engine.inspect(container.id()));
  // CRITICAL: neither side is believed alone, and the guest is told nothing before.
  CARREL_TRY(compare(asked, found));
  const int first = first_process_of(found);
  if (first <= 0 || caller->pid <= 0 || !are_together(first, caller->pid, container.id())) {
    return unsupported(
        "Failed to create sandbox: cannot rely on these walls: it is not the container that called",
        "use an engine on this host, in the same PID namespace");
  }
  CARREL_TRY(check_trees(request, layout, caller->pid));
  CARREL_ASSIGN(Anchor anchor, start_anchor(request, address, container.id(), first));
  sandbox::RoomStarted room;
  room.child = anchor.standing.above;
  room.guest = anchor.standing.pid;
  room.guest_process = std::move(anchor.standing.process);
  room.door = std::move(anchor.door);
  room.stream = std::move(caller->stream);
  container.keep();
  return room;
}

}  // namespace carrel::docker
