#include "backends/docker/kata.h"

#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "backends/docker/comparison.h"
#include "backends/docker/container.h"
#include "backends/docker/ferry.h"
#include "backends/docker/greeting.h"
#include "policy/known_flaws.h"
#include "policy/mount_paths.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;

constexpr char kOtherThanKata[] = "use --backend microvm";
constexpr char kUnverified[] =
    "unverified: no machine of Kata's was at hand, only another runtime in its place";
constexpr std::size_t kEndOfTar = 1024;  // an archive with nothing in it

Status check_engine_for_kata(const Facts& facts, const std::string& runtime) {
  if (facts.kind == EngineKind::kPodman) {
    return unsupported("Kata is not used through podman", kOtherThanKata);
  }
  if (facts.rootless()) {
    return unsupported("Kata is not used through a rootless engine", kOtherThanKata);
  }
  CARREL_TRY(check_engine(facts));
  return check_runtime(runtime, facts);
}

// CRITICAL: an engine mounts what it finds at a path, and nobody can compare what a machine shows
// for it with what was judged. So only what nobody in a sandbox can replace is given.
Status check_given_for_kata(const sandbox::RoomRequest& request) {
  const std::string home = request.folder.substr(0, request.folder.rfind('/'));
  for (const sandbox::RoomRequest::Tree& tree : request.trees) {
    // Root's workspaces are mounted nowhere, and a mount with mapped ids cannot be given.
    if (::geteuid() == 0) {
      return unsupported(
          "root can give a sandbox in a machine of Kata's no workspace and no folder: "
          "an engine does not find '" +
              tree.path + "' as it has to be there",
          kOtherThanKata);
    }
    if (!policy::path_holds(home, tree.path)) {
      return unsupported("a sandbox in a machine of Kata's can be given workspaces and not '" +
                             tree.path + "': nobody can compare what the engine mounts",
                         kOtherThanKata);
    }
    struct stat meant{};
    struct stat placed{};
    if (::fstat(tree.source, &meant) != 0 || ::lstat(tree.path.c_str(), &placed) != 0 ||
        meant.st_dev != placed.st_dev || meant.st_ino != placed.st_ino) {
      return Error{Code::kConflict, 0, "'" + tree.path + "' was replaced meanwhile", {}};
    }
  }
  return {};
}

}  // namespace

std::uint32_t KataContainers::own_processes() const { return 2; }

sandbox::LimitHolders KataContainers::limit_holders(const policy::Spec& spec) const {
  (void)spec;
  return {{}, {}, {}, "the engine was asked for it, and whether Kata keeps to it is unverified"};
}

Result<std::string> KataContainers::describe(const policy::Spec& spec) const {
  CARREL_ASSIGN(const Facts facts, engines().facts(address_of(spec.engine)));
  CARREL_TRY(check_engine_for_kata(facts, spec.runtime));
  return "docker " + facts.version + " with " + spec.runtime + "; unverified";
}

std::string KataContainers::warning(const policy::Spec& spec) const {
  auto facts = engines().facts(address_of(spec.engine));
  if (!facts.ok()) {
    return {};
  }
  const std::string flaws = policy::flaw_warning({.reported = "dockerd " + facts->version});
  return kUnverified + (flaws.empty() ? "" : "; " + flaws);
}

Result<sandbox::RoomStarted> KataContainers::start_at(const Engine& engine,
                                                      const std::string& address,
                                                      const sandbox::RoomRequest& request) const {
  CARREL_ASSIGN(const Facts facts, engines().facts(address));
  CARREL_TRY(check_engine_for_kata(facts, request.runtime));
  CARREL_TRY(check_given_for_kata(request));
  CARREL_TRY(sweep_forgotten(engine, request.folder, request.installation));
  CARREL_ASSIGN(Door door, Door::open(request.folder, request.id, address, request.image));
  ContainerTerms terms;
  terms.runtime = request.runtime;
  terms.image = std::string(kImageName) + ":" + request.installation;
  terms.program = door.program();
  terms.way = WayIn::kLine;
  terms.user = request.host_id.value_or(::geteuid());
  terms.group = request.host_id.value_or(::getegid());
  terms.security = facts.security;
  terms.cpus = facts.cpus;
  CARREL_ASSIGN(const Json asked, container_for(request, terms, exists));
  const std::string nothing(kEndOfTar, '\0');
  CARREL_ASSIGN(std::string id,
                create(engine, request, asked, request.installation, nothing, door));
  Container container(engine, std::move(id), door);
  // Before it begins, so that nothing of what it says is lost.
  CARREL_ASSIGN(const UniqueFd line, engine.attach(container.id()));
  CARREL_TRY(container.start());
  CARREL_ASSIGN(const protocol::Greeting greeting,
                await_greeting(engine, container.id(), line.get()));
  CARREL_ASSIGN(const Json found, engine.inspect(container.id()));
  // CRITICAL: neither side is believed alone, and the guest is told nothing before.
  CARREL_TRY(compare(asked, found));
  CARREL_ASSIGN(const sandbox::SeenKernel seen, judge_kernel(greeting));
  CARREL_ASSIGN(const std::string told, contained_terms(request, seen));
  CARREL_TRY(send_terms(line.get(), told));
  CARREL_ASSIGN(Standing standing, start_ferry(request, address, container.id(), line.get()));
  sandbox::RoomStarted room;
  room.child = standing.above;
  room.guest = standing.pid;
  room.guest_process = std::move(standing.process);
  room.complaints = std::move(standing.complaints);
  room.seen = seen;
  container.keep();
  return room;
}

}  // namespace carrel::docker
