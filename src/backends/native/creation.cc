#include "backends/native/creation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "backends/native/services.h"
#include "policy/spec_json.h"
#include "sandbox/command.h"
#include "storage/box.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

std::string enforcement_json(const Enforcement& enforcement) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Enforcement::Row& row : enforcement.rows) {
    rows.push_back({{"name", row.name}, {"by", row.by}, {"note", row.note}});
  }
  return rows.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

storage::SandboxRow new_row(const CreateRequest& request, std::string spec) {
  storage::SandboxRow row;
  row.id = request.id;
  row.name = request.name;
  row.state = "creating";
  row.spec = std::move(spec);
  row.enforcement = "[]";
  row.created_ms = storage::wall_clock_ms();
  return row;
}

}  // namespace

Error not_warm() {
  return Error{Code::kUnavailable, 0, "the warm sandbox is not there any more", {}};
}

Creation::Creation(Creation&& other) noexcept
    : home_(other.home_),
      rows_(other.rows_),
      request_(std::move(other.request_)),
      lock_(std::move(other.lock_)),
      launched_(std::move(other.launched_)) {}

Creation::~Creation() {
  if (!lock_.valid()) {
    return;
  }
  end_sandbox(launched_);
  lock_.reset();
  constexpr int kOthersMs = 5000;
  if (request_.origin == CreateRequest::Origin::kStopped) {
    (void)bury(*home_, request_.id, {"it could not be started again"}, kOthersMs);
    return;
  }
  (void)bury(*home_, request_.id, {"it was never finished"}, kOthersMs);
  // Nobody was told of it.
  if (auto state = rows_->get(); state.ok()) {
    (void)state.value()->forget(request_.id);
  }
}

// The box comes first and goes last: what carries the id of no box is nobody's.
Result<Creation> Creation::begin(storage::Home& home, storage::OpenState& rows, CreateRequest asked,
                                 Means means) {
  std::string why_no_scope;
  if (asked.spec.cgroup_parent.empty()) {
    asked.spec.cgroup_parent = means.scope->group;
    why_no_scope = means.scope->why_not;
  }
  Creation creation(home, rows, std::move(asked));
  const CreateRequest& request = creation.request_;
  LaunchRequest job;
  std::optional<WarmBox::Parts> parts;
  if (means.warm.has_value()) {
    WarmBox& warm = *means.warm;
    // CRITICAL: in another group it would be under the limits of others.
    if (warm.parent() != request.spec.cgroup_parent || warm.id() != request.id ||
        means.walls != nullptr) {
      return not_warm();
    }
    parts.emplace(warm.take());
    creation.lock_ = std::move(parts->lock);
    job.listener = std::move(parts->listener);
    job.id_range = parts->id_range;
  } else {
    CARREL_ASSIGN(storage::NewBox box, storage::make_box(home, request.id));
    creation.lock_ = std::move(box.lock);
    job.listener = std::move(box.socket);
    CARREL_TRY(storage::note_groups(home, request.id, request.spec.cgroup_parent));
  }
  job.id = request.id;
  job.spec = request.spec;
  job.lifetime = Lifetime::kLongLived;
  job.walls = means.walls;
  job.lease_ms = request.lease_ms;
  job.trees = std::move(creation.request_.trees);
  if (request.origin == CreateRequest::Origin::kStopped) {
    CARREL_TRY(creation.add_row());
  }
  CARREL_TRY(add_trust(home, request.id, request.spec, job.trees));
  const bool is_warm = parts.has_value();
  auto launched = is_warm ? creation.launch_warm(std::move(job), std::move(*parts))
                          : creation.launch_new(std::move(job), std::move(why_no_scope));
  if (!launched.ok()) {
    // Whether it can be had at all, and why not, a new one tells.
    return is_warm ? not_warm() : launched.error();
  }
  creation.launched_ = std::move(launched.value());
  // On disk while the guest builds its room.
  if (request.origin == CreateRequest::Origin::kNew) {
    CARREL_TRY(creation.add_row());
  }
  return creation;
}

Result<Launched> Creation::launch_new(LaunchRequest job, std::string why_no_scope) {
  CARREL_ASSIGN(HostSetup host, look_at_setup(*home_, request_.spec));
  host.why_no_scope = std::move(why_no_scope);
  CARREL_ASSIGN(Launched launched, launch(*home_, host, std::move(job)));
  // The groups refer to `host`, which ends here; they are found again by their name.
  launched.groups.release();
  launched.groups = {};
  return launched;
}

// CRITICAL: everything that somebody asked for comes in here, and is checked as for a new one; the
// limits are all written, whatever the groups were made with.
Result<Launched> Creation::launch_warm(LaunchRequest job, WarmBox::Parts warm) {
  CARREL_TRY(set_limits(warm.groups, job.spec.limits));
  CARREL_ASSIGN(Launch launch,
                Launch::begin_with(*home_, std::move(job), std::move(*warm.process)));
  CARREL_ASSIGN(Launched launched, launch.finish(*warm.host, std::move(warm.groups)));
  launched.groups.release();
  launched.groups = {};
  return launched;
}

Status Creation::add_row() {
  CARREL_ASSIGN(storage::State * state, rows_->get());
  const std::string spec = policy::spec_to_json(request_.spec, policy::Values::kLeftOut);
  if (request_.origin == CreateRequest::Origin::kNew) {
    return state->add(new_row(request_, spec));
  }
  // What goes wrong from here on leaves it stopped.
  CARREL_TRY(storage::note_stop(*home_, request_.id, storage::Wake::kWhenTold));
  return state->start_again(request_.id, spec);
}

Result<Creation::Finished> Creation::finish() {
  sandbox::GuestFrame frame;
  if (Status filled = launched_.stream.fill(); !filled.ok()) {
    return explain(launched_, filled.error());
  }
  CARREL_ASSIGN(bool whole, launched_.stream.next(frame));
  if (!whole) {
    return Error{Code::kUnavailable, 0, "the sandbox is not ready yet", {}};
  }
  if (frame.type == protocol::FrameType::kRoomChecked && launched_.rest.has_value()) {
    CARREL_TRY(finish_room(launched_));
    return Error{Code::kUnavailable, 0, "the sandbox is not ready yet", {}};
  }
  if (frame.type != protocol::FrameType::kReady || launched_.rest.has_value()) {
    return sandbox::to_boot_error(frame.payload);
  }
  protocol::Reader reader(
      {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
  add_clocks(static_cast<protocol::Clocks>(reader.u32()), launched_.enforcement);
  CARREL_TRY(store());
  lock_.reset();
  return Finished{request_.id, launched_.child, std::move(launched_.pidfd)};
}

// Writes down that it exists, and only then lets go of it.
Status Creation::store() {
  storage::BoxRecord record;
  record.id = request_.id;
  record.name = request_.name;
  record.pid = launched_.guest;
  record.start_time = storage::start_time_of(launched_.guest);
  record.boot_id = storage::boot_id();
  record.timeout_ms = request_.spec.limits.timeout.count();
  record.workdir = request_.spec.workdir;
  record.cgroup_parent = request_.spec.cgroup_parent;
  CARREL_ASSIGN(storage::State * state, rows_->get());
  CARREL_TRY(state->set_running(record.id, enforcement_json(launched_.enforcement)));
  CARREL_TRY(storage::write_draft(*home_, record));
  CARREL_TRY(send_services(launched_.stream, request_.spec));
  CARREL_TRY(launched_.stream.send(0, protocol::FrameType::kDetach));
  if (has_network(request_.spec)) {
    CARREL_TRY(register_network(*home_, record.id, egress::Registration::Kind::kLongLived,
                                record.pid, request_.spec));
  }
  CARREL_TRY(storage::publish_draft(*home_, record.id));
  CARREL_TRY(storage::drop_stop(*home_, record.id));
  const policy::Spec& spec = request_.spec;
  const std::string& image = spec.image_name.empty() ? spec.image : spec.image_name;
  storage::add_event(*home_, storage::start_event(record.id, image, "/workspace"));
  return {};
}

}  // namespace carrel::native
