#include "backends/native/pause.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "backends/native/groups.h"
#include "backends/native/strays.h"
#include "kernel/cgroup.h"
#include "protocol/frame.h"
#include "sandbox/guest_stream.h"
#include "storage/events.h"

namespace carrel::native {

namespace {

constexpr int kGreetMs = 10'000;
constexpr int kPauseAnswerMs = 5'000;
constexpr int kOthersMs = 30'000;  // for a snapshot that is being taken

using protocol::Standstill;

// The workload's group, if it can be frozen so that what is in it can still be killed: of version 1
// it could not.
class Work {
 public:
  Work(const storage::Home& home, const storage::BoxRecord& record) {
    auto layout = find_groups(home, record.cgroup_parent);
    if (!layout.ok() || !layout.value().has_v2()) {
      return;
    }
    layout_ = std::make_unique<kernel::CgroupLayout>(std::move(layout.value()));
    auto whole = kernel::Cgroup::open(*layout_, record.id, kernel::CgroupOwnership::kBorrowed);
    if (!whole.ok()) {
      return;
    }
    auto work = whole.value().open_subgroup(kWorkLeaf, kernel::CgroupOwnership::kBorrowed);
    if (work.ok()) {
      group_.emplace(std::move(work.value()));
    }
  }
  [[nodiscard]] Standstill how() const {
    return group_.has_value() ? Standstill::kByGroup : Standstill::kBySignals;
  }
  Status freeze() { return group_.has_value() ? group_->freeze() : Status(); }
  Status thaw() { return group_.has_value() ? group_->thaw() : Status(); }

 private:
  std::unique_ptr<kernel::CgroupLayout> layout_;
  std::optional<kernel::Cgroup> group_;
};

Result<sandbox::GuestStream> reach(const storage::Home& home, const storage::BoxRecord& record) {
  CARREL_ASSIGN(UniqueFd socket, storage::connect_box(home, record));
  sandbox::GuestStream guest(std::move(socket));
  CARREL_TRY(guest.greet(record.id, kGreetMs));
  return guest;
}

Status await_answer(sandbox::GuestStream& guest, const std::string& id) {
  CARREL_ASSIGN(const sandbox::GuestFrame answer, guest.wait(kPauseAnswerMs));
  protocol::Reader reader(
      {reinterpret_cast<const unsigned char*>(answer.payload.data()), answer.payload.size()});
  const auto reason = static_cast<int>(reader.u32() & 0xfff);
  if (answer.type != protocol::FrameType::kFrozen || reason != 0) {
    return Error{Code::kConflict, reason, "the sandbox " + id + " does not stand still", {}};
  }
  return {};
}

Status tell_pause(sandbox::GuestStream& guest, const std::string& id, Standstill how) {
  std::array<unsigned char, 4> buffer{};
  protocol::Writer writer(buffer);
  writer.u32(static_cast<std::uint32_t>(how));
  CARREL_TRY(guest.send(1, protocol::FrameType::kPause,
                        {reinterpret_cast<const char*>(buffer.data()), writer.size()}));
  return await_answer(guest, id);
}

Status tell_resume(sandbox::GuestStream& guest, const std::string& id) {
  CARREL_TRY(guest.send(1, protocol::FrameType::kResume));
  return await_answer(guest, id);
}

}  // namespace

Status pause_sandbox(const storage::Home& home, const storage::BoxRecord& record,
                     const storage::Pause& pause) {
  CARREL_ASSIGN(const UniqueFd lock, storage::lock_standstill(home, record.id, kOthersMs));
  // Nobody removes the box while something is noted in it.
  CARREL_ASSIGN(const UniqueFd box, storage::lock_box(home, record.id, kOthersMs));
  CARREL_ASSIGN(sandbox::GuestStream guest, reach(home, record));
  Work work(home, record);
  // The note comes first: what is half paused is paused, and can be resumed.
  CARREL_TRY(storage::note_pause(home, record.id, pause));
  Status paused = tell_pause(guest, record.id, work.how());
  if (paused.ok()) {
    paused = work.freeze();
  }
  if (!paused.ok()) {
    (void)work.thaw();
    (void)tell_resume(guest, record.id);
    (void)storage::drop_pause(home, record.id);
    return paused;
  }
  storage::add_event(home, storage::pause_event(record.id, pause.reason));
  return {};
}

Status resume_sandbox(const storage::Home& home, const storage::BoxRecord& record) {
  CARREL_ASSIGN(const UniqueFd lock, storage::lock_standstill(home, record.id, kOthersMs));
  // Nobody removes the box while something is noted in it.
  CARREL_ASSIGN(const UniqueFd box, storage::lock_box(home, record.id, kOthersMs));
  if (!storage::noted_pause(home, record.id).has_value()) {
    return {};
  }
  CARREL_ASSIGN(sandbox::GuestStream guest, reach(home, record));
  CARREL_TRY(Work(home, record).thaw());
  CARREL_TRY(tell_resume(guest, record.id));
  CARREL_TRY(storage::drop_pause(home, record.id));
  storage::add_event(home, storage::resume_event(record.id));
  return {};
}

}  // namespace carrel::native
