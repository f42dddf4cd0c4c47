#include "backends/native/creation.h"

#include <poll.h>

#include <chrono>
#include <utility>

#include "backends/native/image_home.h"
#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "backends/native/services.h"
#include "base/json_writer.h"
#include "policy/spec_json.h"
#include "sandbox/command.h"
#include "storage/box.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

std::string enforcement_json(const Enforcement& enforcement) {
  JsonWriter rows;
  rows.open_array();
  for (const Enforcement::Row& row : enforcement.rows) {
    rows.open_object().field("name", row.name).field("by", row.by).field("note", row.note);
    rows.close_object();
  }
  rows.close_array();
  return std::move(rows).text();
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

// A sandbox does not outlive the host's going down, and what is said of one that is gone is no
// promise. But one with a workspace of a name can come back.
Lasting lasting_of(const CreateRequest& request) {
  return request.spec.workspace.empty() ? Lasting::kUnsynced : Lasting::kSynced;
}

// Those that control groups hold.
bool are_same(const policy::Limits& one, const policy::Limits& other) {
  return one.memory_bytes == other.memory_bytes && one.cpu_millis == other.cpu_millis &&
         one.pids == other.pids;
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
      walls_(other.walls_),
      launched_(std::move(other.launched_)),
      draft_(std::move(other.draft_)),
      row_(std::move(other.row_)),
      noted_(std::move(other.noted_)) {}

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
  (void)rows_->use([&](storage::State& state) { return state.forget(request_.id); });
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
    creation.draft_ = std::move(parts->draft);
  } else {
    CARREL_ASSIGN(storage::NewBox box, storage::make_box(home, request.id));
    creation.lock_ = std::move(box.lock);
    job.listener = std::move(box.socket);
    CARREL_TRY(storage::note_groups(home, request.id, request.spec.cgroup_parent));
  }
  job.id = request.id;
  job.spec = request.spec;
  job.lifetime = Lifetime::kLongLived;
  job.walls = creation.walls_ = means.walls;
  job.lease_ms = request.lease_ms;
  job.trees = std::move(creation.request_.trees);
  if (request.origin == CreateRequest::Origin::kStopped) {
    CARREL_TRY(creation.add_row());
  }
  CARREL_TRY(add_trust(home, request.id, request.spec, job.trees));
  CARREL_TRY(add_image_home(request.spec, job.trees));
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
// limits are all written, whatever the groups were made with, unless this process has written the
// same.
Result<Launched> Creation::launch_warm(LaunchRequest job, WarmBox::Parts warm) {
  const policy::Limits limits = job.spec.limits;
  CARREL_ASSIGN(Launch launch, Launch::begin_with(*home_, std::move(job), std::move(*warm.process),
                                                  std::move(warm.ahead)));
  // While the guest builds its room; it waits for more before it starts anything.
  if (!warm.limits.has_value() || !are_same(*warm.limits, limits)) {
    CARREL_TRY(set_limits(warm.groups, limits));
  }
  CARREL_ASSIGN(Launched launched, launch.finish(*warm.host, std::move(warm.groups)));
  launched.groups.release();
  launched.groups = {};
  return launched;
}

Status Creation::draft_record() {
  const std::uint64_t began =
      draft_.has_value() && draft_->pid == launched_.guest ? draft_->start_time : 0;
  const storage::BoxRecord record =
      new_record(request_.id, request_.name, request_.spec, launched_.guest, began);
  if (draft_ == record && storage::touch_draft(*home_, request_.id).ok()) {
    return {};
  }
  return storage::write_draft(*home_, record);
}

Status Creation::add_row() {
  row_ = new_row(request_, policy::spec_to_json(request_.spec, policy::Values::kLeftOut));
  if (request_.origin == CreateRequest::Origin::kNew) {
    // All of it at once, as it will most likely be: who finds a row and no record knows that it
    // never became whole.
    if (request_.spec.backend == policy::Backend::kNative && launched_.guest > 0) {
      Enforcement likely = launched_.enforcement;
      add_clocks(protocol::Clocks::kOwn, likely);
      row_.state = "running";
      row_.enforcement = enforcement_json(likely);
      noted_ = std::move(likely);
      CARREL_TRY(draft_record());
    }
    return rows_->use([&](storage::State& state) { return state.add(row_, lasting_of(request_)); });
  }
  // What goes wrong from here on leaves it stopped.
  CARREL_TRY(storage::note_stop(*home_, request_.id, storage::Wake::kWhenTold));
  return rows_->use(
      [&](storage::State& state) { return state.start_again(request_.id, row_.spec); });
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
  if (sandbox::are_machines(walls_)) {
    (void)settle_origin(*walls_, launched_);
  }
  CARREL_TRY(store());
  lock_.reset();
  return Finished{request_.id, launched_.child, std::move(launched_.pidfd),
                  std::move(launched_.stream), std::move(row_)};
}

// Writes down that it exists, and only then lets go of it.
Status Creation::store() {
  const std::string& id = request_.id;
  if (noted_ != launched_.enforcement) {
    row_.state = "running";
    row_.enforcement = enforcement_json(launched_.enforcement);
    CARREL_TRY(
        rows_->use([&](storage::State& state) { return state.set_running(id, row_.enforcement); }));
  }
  if (!noted_.has_value()) {
    CARREL_TRY(draft_record());
  }
  CARREL_TRY(send_services(launched_.stream, request_.spec));
  CARREL_TRY(launched_.stream.send(0, protocol::FrameType::kDetach));
  if (has_network(request_.spec)) {
    CARREL_TRY(register_network(*home_, id, egress::Registration::Kind::kLongLived, launched_.guest,
                                request_.spec));
  }
  CARREL_TRY(storage::publish_draft(*home_, id));
  if (request_.origin == CreateRequest::Origin::kStopped) {
    CARREL_TRY(storage::drop_stop(*home_, id));
  }
  const policy::Spec& spec = request_.spec;
  const std::string& image = spec.image_name.empty() ? spec.image : spec.image_name;
  storage::add_event(*home_, storage::start_event(id, image, "/workspace"));
  return {};
}

Result<Creation::Finished> finish_warm(storage::Home& home, storage::OpenState& rows,
                                       CreateRequest request, WarmBox warm) {
  constexpr std::chrono::seconds kLongest{30};
  const OwnScope scope{warm.parent(), {}};
  CARREL_ASSIGN(Creation creation, Creation::begin(home, rows, std::move(request),
                                                   {nullptr, &scope, std::move(warm)}));
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  for (;;) {
    pollfd wait{creation.stream_fd(), POLLIN, 0};
    if (std::chrono::steady_clock::now() >= deadline ||
        ::poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(kLongest).count())) == 0) {
      return not_warm();
    }
    auto made = creation.finish();
    if (made.ok() || made.error().code != Code::kUnavailable) {
      return made;
    }
  }
}

}  // namespace carrel::native
