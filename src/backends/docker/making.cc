#include "backends/docker/making.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "backends/docker/container.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLookAgain{5};
constexpr std::chrono::seconds kInFlight{5};  // how long an engine usually works at most

Error unsupported(std::string message, std::string hint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
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
  if (facts.kind == EngineKind::kDocker && facts.rootless()) {
    return unsupported(
        "the Docker engine is a rootless one, whose containers cannot have the "
        "caller's user id",
        "use --backend native, which needs no root either, or a rootless podman");
  }
  if (facts.rootless() && facts.groups != "2") {
    return unsupported(
        "the rootless podman holds no limits on a host with control groups of version 1",
        "use --backend native, which needs no root either");
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
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
  CARREL_ASSIGN(Facts facts, engine.facts());
  const std::lock_guard lock(mutex_);
  seen_[address] = {Clock::now(), facts};
  return facts;
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
  for (int tries = 0;; ++tries) {
    auto answer = engine.ask(http::Method::kPost, "/containers/create?name=" + name,
                             asked.dump(-1, ' ', false, Json::error_handler_t::replace), kWork);
    if (!answer.ok()) {
      door.leave();  // it may make the container yet
      return answer.error();
    }
    if (answer->status == 404 && tries == 0) {
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

void sweep_doors(const std::string& folder, const std::string& installation) {
  std::set<std::string> silent;  // each is waited for once
  for (const LeftDoor& door : left_doors(folder)) {
    auto engine = Engine::at(door.engine);
    if (silent.contains(door.engine)) {
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
    bool gone = left.ok();
    if (!gone) {
      silent.insert(door.engine);
    }
    for (const Engine::Listed& one : left.ok() ? left.value() : std::vector<Engine::Listed>()) {
      gone = engine->remove(one.id).ok() && gone;
    }
    if (gone && (!left->empty() || door.age > kInFlight)) {
      remove_door(folder, door);
    }
  }
}

void sweep_forgotten(const Engine& engine, const std::string& folder,
                     const std::string& installation) {
  auto list = engine.labelled({label_of(installation)}, kSandboxLabel);
  for (const Engine::Listed& one : list.ok() ? list.value() : std::vector<Engine::Listed>()) {
    const bool runs_nothing =
        one.state == "created" || one.state == "exited" || one.state == "dead";
    if (runs_nothing && !has_door(folder, one.value)) {
      (void)engine.remove(one.id);
    }
  }
}

}  // namespace carrel::docker
