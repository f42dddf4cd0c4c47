#include "backends/docker/docker.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "backends/docker/call.h"
#include "backends/docker/container.h"
#include "backends/docker/door.h"
#include "backends/docker/engine.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "policy/known_flaws.h"

namespace carrel::docker {

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLookAgain{5};
constexpr std::chrono::seconds kInFlight{5};  // how long an engine usually works at most
constexpr char kImageName[] = "carrel-room";

Error unsupported(std::string message, std::string hint) {
  return Error{Code::kUnsupported, 0, std::move(message), std::move(hint)};
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string address_of(const std::string& given) { return given.empty() ? usual_address() : given; }

bool has(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Those that have a kernel of their own let no socket of the host's in.
bool shares_kernel(const std::string& runtime) {
  return !runtime.starts_with("runsc") && !runtime.starts_with("kata") &&
         runtime.find("gvisor") == std::string::npos;
}

Result<std::string> choose_runtime(const std::string& wanted, const Facts& facts) {
  const std::string runtime = wanted.empty() ? facts.usual_runtime : wanted;
  if (!has(facts.runtimes, runtime)) {
    std::string known;
    for (const std::string& name : facts.runtimes) {
      known += (known.empty() ? "" : ", ") + name;
    }
    return unsupported("the Docker engine has no runtime '" + runtime + "'", "it has " + known);
  }
  if (!shares_kernel(runtime)) {
    return unsupported(
        "the runtime '" + runtime +
            "' of the Docker engine has a kernel of its own, which lets no socket of "
            "the host's in: there is no way to the guest",
        "use --runtime runc");
  }
  return runtime;
}

Status check_engine(const Facts& facts) {
  if (has(facts.security, "name=rootless")) {
    return unsupported(
        "the Docker engine is a rootless one, whose containers cannot have the "
        "caller's user id",
        "use --backend native, which needs no root either");
  }
  return {};
}

std::string label_of(const std::string& installation) {
  return std::string(kInstallationLabel) + "=" + installation;
}

// A container that was made and never started, and whose maker is gone: an engine can finish what
// nobody waits for any more.
void sweep_forgotten(const Engine& engine, const std::string& folder,
                     const std::string& installation) {
  auto list = engine.labelled({label_of(installation)}, kSandboxLabel);
  for (const Engine::Listed& one : list.ok() ? list.value() : std::vector<Engine::Listed>()) {
    if (one.state == "created" && !has_door(folder, one.value)) {
      (void)engine.remove(one.id);
    }
  }
}

// A container that is removed unless it is kept.
class Container {
 public:
  Container(const Engine& engine, std::string id, Door& door)
      : engine_(&engine), id_(std::move(id)), door_(&door) {}
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;
  ~Container() {
    if (!id_.empty() && !engine_->remove(id_).ok()) {
      door_->leave();
    }
  }
  [[nodiscard]] const std::string& id() const { return id_; }
  void keep() { id_.clear(); }

 private:
  const Engine* engine_;
  std::string id_;
  Door* door_;
};

Result<std::string> create(const Engine& engine, const sandbox::RoomRequest& request,
                           const Json& asked, Door& door) {
  const std::string name = "carrel-" + request.id;
  for (int tries = 0;; ++tries) {
    auto answer = engine.ask(http::Method::kPost, "/containers/create?name=" + name,
                             asked.dump(-1, ' ', false, Json::error_handler_t::replace), kWork);
    if (!answer.ok()) {
      door.leave();  // it may make the container yet
      return answer.error();
    }
    if (answer->status == 404 && tries == 0) {
      CARREL_TRY(
          engine.import_empty(kImageName, request.installation, label_of(request.installation)));
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

}  // namespace

struct Containers::Seen {
  Clock::time_point when;
  Facts facts;
};

Containers::Containers() = default;
Containers::~Containers() = default;

Result<Facts> Containers::facts(const std::string& address) const {
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

Result<std::string> Containers::describe(const policy::Spec& spec) const {
  CARREL_ASSIGN(const Facts facts, this->facts(address_of(spec.engine)));
  CARREL_TRY(check_engine(facts));
  CARREL_ASSIGN(const std::string runtime, choose_runtime(spec.runtime, facts));
  return "docker " + facts.version + " with " + runtime +
         (runtime == "runc" && !facts.runc.empty() ? " " + facts.runc : "");
}

std::string Containers::warning(const policy::Spec& spec) const {
  auto facts = this->facts(address_of(spec.engine));
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

Status Containers::check(const policy::Spec& spec) const {
  const auto builder = describe(spec);
  return builder.ok() ? Status() : Status(builder.error());
}

Result<sandbox::RoomStarted> Containers::start(const sandbox::RoomRequest& request) const {
  sweep(request.folder, request.installation);
  const std::string address = address_of(request.engine);
  CARREL_ASSIGN(const Facts facts, this->facts(address));
  CARREL_TRY(check_engine(facts));
  CARREL_ASSIGN(const Engine engine, Engine::at(address));
  sweep_forgotten(engine, request.folder, request.installation);
  CARREL_ASSIGN(Door door, Door::open(request.folder, request.id, address, request.image));
  ContainerTerms terms;
  CARREL_ASSIGN(terms.runtime, choose_runtime(request.runtime, facts));
  terms.image = std::string(kImageName) + ":" + request.installation;
  terms.program = door.program();
  terms.door = door.socket();
  terms.user = request.host_id.value_or(::geteuid());
  terms.group = request.host_id.value_or(::getegid());
  terms.security = facts.security;
  terms.cpus = facts.cpus;
  CARREL_ASSIGN(const Json asked, container_for(request, terms, exists));
  CARREL_ASSIGN(std::string id, create(engine, request, asked, door));
  Container container(engine, std::move(id), door);
  CARREL_ASSIGN(
      const Answer begun,
      engine.ask(http::Method::kPost, "/containers/" + container.id() + "/start", {}, kWork));
  if (!begun.ok()) {
    return refusal("start the container", begun);
  }
  CARREL_ASSIGN(Door::Caller caller, await_call(engine, container.id(), door));
  CARREL_ASSIGN(const Json found, engine.inspect(container.id()));
  // CRITICAL: neither side is believed alone, and the guest is told nothing before.
  CARREL_TRY(compare(asked, found));
  if (caller.pid <= 0 || first_process_of(found) != caller.pid) {
    return unsupported(
        "Failed to create sandbox: cannot rely on these walls: it is not the "
        "container's first process that called",
        "use an engine on this host, in the same PID namespace");
  }
  sandbox::RoomStarted room;
  CARREL_ASSIGN(room.guest_process, receive_guest(caller.stream.get()));
  CARREL_TRY(check_apart(caller.pid));
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

void Containers::sweep(const std::string& folder, const std::string& installation) const {
  for (const LeftDoor& door : left_doors(folder)) {
    auto engine = Engine::at(door.engine);
    if (!engine.ok()) {
      if (door.age > kInFlight) {
        remove_door(folder, door);
      }
      continue;
    }
    auto left = engine->labelled(
        {label_of(installation), std::string(kSandboxLabel) + "=" + door.id}, kSandboxLabel);
    bool gone = left.ok();
    for (const Engine::Listed& one : left.ok() ? left.value() : std::vector<Engine::Listed>()) {
      gone = engine->remove(one.id).ok() && gone;
    }
    if (gone && (!left->empty() || door.age > kInFlight)) {
      remove_door(folder, door);
    }
  }
}

}  // namespace carrel::docker
