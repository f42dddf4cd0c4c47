#include "agent/room.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "agent/json_value.h"
#include "manager/stopping.h"
#include "storage/events.h"
#include "storage/state.h"
#include "tools/mcp_tools.h"
#include "tools/toolbox.h"

namespace carrel::agent {
namespace {

// One that is not there is fine.
Status remove_sandbox(storage::Home& home, const std::string& named) {
  auto removed = manager::remove_named(home, named, 0);
  return removed.ok() || removed.error().code == Code::kNotFound ? Status()
                                                                 : Status(removed.error());
}

// Also one that is still being made.
Result<bool> is_live(const storage::Home& home, const std::string& name) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  CARREL_ASSIGN(const std::vector<storage::SandboxRow> rows,
                state.list(storage::State::Which::kLive));
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
}

}  // namespace

Room::Room(storage::Home& home, const Profile& profile, RoomPlan plan, tools::Questions& questions,
           Reporter& reporter)
    : home_(home),
      profile_(profile),
      plan_(std::move(plan)),
      questions_(questions),
      reporter_(reporter) {}

Room::~Room() { (void)close(); }

// A run that was killed may have asked for one of this name which comes only now: whoever has the
// execution to himself takes it away, however late it is.
Result<std::string> Room::make_sandbox() {
  constexpr std::chrono::seconds kPatience{5};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (bool is_gone = false;;) {
    auto id = make_sandbox_once();
    if (id.ok() || id.error().code != Code::kConflict ||
        std::chrono::steady_clock::now() >= deadline) {
      return id;
    }
    CARREL_ASSIGN(const bool is_there, is_live(home_, plan_.name));
    if (!is_there && std::exchange(is_gone, true)) {
      return id;  // somebody else has what it needs
    }
    CARREL_TRY(remove_sandbox(home_, plan_.name));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Result<std::string> Room::make_sandbox_once() {
  manager::Wish wish;
  wish.spec = plan_.spec;
  wish.given = plan_.chosen;
  wish.name = plan_.name;
  wish.lease_ms = plan_.lease_ms;
  wish.finish_restore = plan_.finish_restore;
  if (plan_.open_mounts) {
    CARREL_ASSIGN(wish.trees, plan_.open_mounts(plan_.spec));
  }
  return manager::make_sandbox(home_, std::move(wish));
}

Status Room::open_sandbox() {
  CARREL_ASSIGN(const std::string id, make_sandbox());
  CARREL_ASSIGN(storage::Home home, storage::Home::open_at(home_.path()));
  CARREL_ASSIGN(box_, tools::Box::open(std::move(home), id));
  for (const std::string& event : storage::events_of(home_, id)) {
    reporter_.sandbox_event(event);
  }
  sessions_ = std::make_unique<tools::Sessions>(*box_);
  return {};
}

Status Room::connect_servers(const tools::Cancel& cancel) {
  if (profile_.mcp.empty()) {
    return {};
  }
  CARREL_ASSIGN(const std::vector<mcp::ServerConfig> configs,
                mcp::read_servers(Json::parse(profile_.mcp, nullptr, false)));
  mcp::Servers::Options options;
  options.cancel = cancel.fd();
  options.http.proxies = http::ProxySettings::from_environment();
  if (box_ != nullptr) {
    options.sandboxes = mcp::in_sandbox(home_, box_->record());
  }
  servers_ = std::make_unique<mcp::Servers>(std::move(options));
  for (const mcp::Servers::Report& report : servers_->connect(configs)) {
    if (report.error.has_value()) {
      reporter_.notice("the MCP server '" + report.server +
                       "' has no tools: " + report.error->to_string());
    }
    for (const std::string& sentence : report.notices) {
      reporter_.notice(sentence);
    }
  }
  return {};
}

Status Room::fill(const tools::Cancel& cancel) {
  const bool code = profile_.sandboxed == Sandboxed::kAll || profile_.sandboxed == Sandboxed::kCode;
  const bool files =
      profile_.sandboxed == Sandboxed::kAll || profile_.sandboxed == Sandboxed::kFiles;
  const std::string folder = profile_.folder.empty() ? "." : profile_.folder;
  if (!code) {
    host_commands_ = std::make_unique<tools::HostCommands>(folder);
    reporter_.notice("commands run on this host, outside of any sandbox: the profile says so");
  }
  if (!files) {
    CARREL_ASSIGN(host_files_, tools::HostFiles::open(folder));
  }
  tools::Surroundings with;
  with.commands = code ? static_cast<tools::Commands*>(box_.get()) : host_commands_.get();
  with.files = files ? static_cast<tools::FileStore*>(box_.get()) : host_files_.get();
  // Where the agent's commands can read it.
  with.outputs = code ? static_cast<tools::FileStore*>(box_.get()) : nullptr;
  with.sessions = code ? sessions_.get() : nullptr;
  with.questions = &questions_;
  with.skills = profile_.skills;
  for (const std::string& allowed : profile_.allowed_services) {
    for (const ServiceSpec& service : profile_.services) {
      if (service.name == allowed) {
        with.services.push_back({service.name, service.description, service.arguments,
                                 tools::perform_by_program(service.command, service.timeout)});
      }
    }
  }
  auto registry = std::make_unique<tools::Registry>();
  CARREL_TRY(tools::add_tools(profile_.tools, with, *registry));
  CARREL_TRY(connect_servers(cancel));
  if (servers_ != nullptr) {
    for (const Error& refused : tools::add_mcp_tools(*servers_, *registry)) {
      reporter_.notice(refused.to_string());
    }
  }
  registry->close();
  registry_ = std::move(registry);
  return {};
}

Result<tools::Registry*> Room::tools(const tools::Cancel& cancel) {
  if (registry_ == nullptr) {
    CARREL_TRY(clear());
    if (profile_.sandboxed != Sandboxed::kNone) {
      CARREL_TRY(open_sandbox());
    }
    if (Status filled = fill(cancel); !filled.ok()) {
      (void)close();
      return filled.error();
    }
  }
  return registry_.get();
}

Status Room::close() {
  registry_.reset();
  servers_.reset();
  sessions_.reset();
  if (box_ == nullptr) {
    return {};
  }
  const std::string id = box_->record().id;
  box_.reset();
  CARREL_TRY(remove_sandbox(home_, id));
  const std::vector<std::string> events = storage::events_of(home_, id);
  if (!events.empty()) {
    reporter_.sandbox_event(events.back());
  }
  return {};
}

Status Room::clear() {
  CARREL_TRY(close());
  return remove_sandbox(home_, plan_.name);
}

}  // namespace carrel::agent
