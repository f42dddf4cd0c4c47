#include "backends/docker/making.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "backends/docker/container.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLookAgain{5};
constexpr std::chrono::seconds kSilence{1};
constexpr std::chrono::seconds kInFlight{5};  // how long an engine usually works at most

bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool runs_nothing(const Engine::Listed& container) {
  return container.state == "created" || container.state == "exited" || container.state == "dead";
}

// Waits until the container is gone that a sandbox had before it was stopped: an engine removes it
// a moment after its end. Who waits in vain is refused by the engine, in its words.
Status await_former(const Engine& engine, const sandbox::RoomRequest& request) {
  constexpr std::chrono::milliseconds kLook{50};
  const auto deadline = Clock::now() + kInFlight;
  while (Clock::now() < deadline) {
    CARREL_ASSIGN(const std::vector<Engine::Listed> former,
                  engine.labelled({label_of(request.installation),
                                   std::string(kSandboxLabel) + "=" + request.id},
                                  kSandboxLabel));
    if (former.empty()) {
      break;
    }
    for (const Engine::Listed& one : former) {
      CARREL_TRY(runs_nothing(one) ? engine.remove(one.id) : Status());
    }
    std::this_thread::sleep_for(kLook);
  }
  return {};
}

}  // namespace

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string address_of(const std::string& given) { return given.empty() ? usual_address() : given; }

std::string label_of(const std::string& installation) {
  return std::string(kInstallationLabel) + "=" + installation;
}

Status check_runtime(const std::string& runtime, const Facts& facts) {
  if (facts.kind == EngineKind::kPodman && runtime != facts.usual_runtime) {
    return unsupported(
        "podman's socket takes no runtime but its own, '" + facts.usual_runtime + "'",
        "start its service with --runtime");
  }
  if (has(facts.runtimes, runtime)) {
    return {};
  }
  std::string known;
  for (const std::string& name : facts.runtimes) {
    known += (known.empty() ? "" : ", ") + name;
  }
  return unsupported("the Docker engine has no runtime '" + runtime + "'", "it has " + known);
}

Status check_engine(const Facts& facts) {
  // CRITICAL: of all ids of the host its containers can have its owner's only.
  if (facts.rootless() && facts.owner != ::geteuid()) {
    return unsupported("the engine is a rootless one of somebody else's (user id " +
                           std::to_string(facts.owner) + ")",
                       "name the socket of an engine of your own or of root's: "
                       "DOCKER_HOST=unix:///path");
  }
  return {};
}

Result<Facts> KnownEngines::facts(const std::string& address) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = seen_.find(address);
        found != seen_.end() && Clock::now() - found->second.when < kLookAgain) {
      return found->second.facts;
    }
  }
  CARREL_TRY(check_silence(address));
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
  auto facts = engine.facts();
  if (!facts.ok()) {
    note(address, facts.error());
    return facts.error();
  }
  const std::lock_guard lock(mutex_);
  seen_[address] = {Clock::now(), facts.value()};
  return facts;
}

void KnownEngines::note(const std::string& address, const Error& error) const {
  if (error.code == Code::kTimeout) {
    const std::lock_guard lock(mutex_);
    silent_[address] = {Clock::now(), error};
  }
}

Status KnownEngines::check_silence(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  const auto found = silent_.find(address);
  return found != silent_.end() && Clock::now() - found->second.when < kSilence
             ? Status(found->second.error)
             : Status();
}

Container::~Container() {
  if (!id_.empty() && !engine_->remove(id_).ok()) {
    door_->leave();
  }
}

Status Container::start() {
  auto begun = engine_->ask(http::Method::kPost, "/containers/" + id_ + "/start", {}, kWork);
  if (!begun.ok()) {
    id_.clear();
    door_->leave();
    return begun.error();
  }
  return begun->ok() ? Status() : refusal("start the container", begun.value());
}

Result<std::string> create(const Engine& engine, const sandbox::RoomRequest& request,
                           const Json& asked, const std::string& tag, const std::string& archive,
                           Door& door) {
  const std::string name = "carrel-" + request.id;
  bool imported = false;
  bool awaited = false;
  while (true) {
    auto answer = engine.ask(http::Method::kPost, "/containers/create?name=" + name,
                             asked.dump(-1, ' ', false, Json::error_handler_t::replace), kWork);
    if (!answer.ok()) {
      door.leave();  // it may make the container yet
      return answer.error();
    }
    if (answer->status == 409 && !std::exchange(awaited, true)) {
      CARREL_TRY(await_former(engine, request));
      continue;
    }
    if (answer->status == 404 && !std::exchange(imported, true)) {
      CARREL_TRY(engine.import_image(kImageName, tag, label_of(request.installation), archive));
      continue;
    }
    if (!answer->ok()) {
      return refusal("create the container", answer.value());
    }
    const Json body = Json::parse(answer->body, nullptr, false);
    if (body.is_object() && body.contains("Id") && body["Id"].is_string()) {
      return body["Id"].get<std::string>();
    }
    door.leave();
    return Error{Code::kUnavailable, 0, "the Docker engine sent a malformed answer", {}};
  }
}

void sweep_doors(const std::string& folder, const std::string& installation,
                 const KnownEngines& engines) {
  std::set<std::string> silent;  // each is waited for once
  for (const LeftDoor& door : left_doors(folder)) {
    auto engine = Engine::at(door.engine);
    if (silent.contains(door.engine) || !engines.check_silence(door.engine).ok()) {
      continue;
    }
    if (!engine.ok()) {
      if (door.age > kInFlight) {
        remove_door(folder, door);
      }
      continue;
    }
    auto left = engine->labelled(
        {label_of(installation), std::string(kSandboxLabel) + "=" + door.id}, kSandboxLabel);
    Status gone = left.ok() ? Status() : Status(left.error());
    for (const Engine::Listed& one : left.ok() ? left.value() : std::vector<Engine::Listed>()) {
      if (Status removed = engine->remove(one.id); !removed.ok()) {
        gone = std::move(removed);
      }
    }
    if (!left.ok() || engine->silent()) {
      silent.insert(door.engine);
      engines.note(door.engine, gone.error());
    }
    if (gone.ok() && (!left->empty() || door.age > kInFlight)) {
      remove_door(folder, door);
    }
  }
}

Status sweep_forgotten(const Engine& engine, const std::string& folder,
                       const std::string& installation) {
  auto list = engine.labelled({label_of(installation)}, kSandboxLabel);
  if (!list.ok() && list.error().code == Code::kTimeout) {
    return list.error();
  }
  for (const Engine::Listed& one : list.ok() ? list.value() : std::vector<Engine::Listed>()) {
    if (runs_nothing(one) && !has_door(folder, one.value)) {
      const Status removed = engine.remove(one.id);
      if (engine.silent()) {
        return removed;
      }
    }
  }
  return {};
}

}  // namespace carrel::docker
