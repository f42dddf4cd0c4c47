#include "backends/native/standstill.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "backends/native/groups.h"
#include "backends/native/keeper_client.h"
#include "backends/native/strays.h"
#include "kernel/cgroup.h"
#include "protocol/wire.h"
#include "sandbox/guest_stream.h"
#include "storage/box_use.h"

namespace carrel::native {

namespace {

constexpr int kGreetMs = 10'000;
constexpr int kFreezeMs = 5'000;
constexpr int kOthersStandMs = 30'000;

// Lets a group go on when its parent cannot any more. It has a session of its own, so that what
// ends the parent does not end it, too.
class Guard {
 public:
  static Result<Guard> start(kernel::Cgroup& group) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      return system_error("guard a sandbox that stands still");
    }
    Guard guard;
    guard.leash_ = UniqueFd(ends[1]);
    const UniqueFd held(ends[0]);
    guard.pid_ = ::fork();
    if (guard.pid_ < 0) {
      return system_error("guard a sandbox that stands still");
    }
    if (guard.pid_ == 0) {
      guard.leash_.reset();
      ::setsid();
      char byte = 0;
      ssize_t n = 0;
      while ((n = ::read(held.get(), &byte, 1)) < 0 && errno == EINTR) {
      }
      if (n == 0) {
        (void)group.thaw();
      }
      ::_exit(0);
    }
    return guard;
  }
  Guard(Guard&& other) noexcept
      : leash_(std::move(other.leash_)), pid_(std::exchange(other.pid_, 0)) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  Guard& operator=(Guard&&) = delete;
  ~Guard() {
    if (pid_ > 0) {
      (void)!::write(leash_.get(), "", 1);
      while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }

 private:
  Guard() = default;
  UniqueFd leash_;
  pid_t pid_ = 0;
};

}  // namespace

class BoxWriters::Box {
 public:
  Status freeze(const storage::Home& home, const storage::BoxRecord& record) {
    CARREL_ASSIGN(lock_, storage::lock_standstill(home, record.id, kOthersStandMs));
    if (storage::noted_pause(home, record.id).has_value()) {
      return {};  // and so it stays
    }
    if (Status by_group = freeze_group(home, record);
        by_group.ok() ||
        (by_group.error().code != Code::kUnsupported && by_group.error().code != Code::kNotFound)) {
      return by_group;
    }
    group_.reset();
    CARREL_ASSIGN(UniqueFd socket, storage::connect_box(home, record));
    guest_.emplace(std::move(socket));
    CARREL_TRY(guest_->greet(record.id, kGreetMs));
    CARREL_TRY(guest_->send(1, protocol::FrameType::kFreeze));
    CARREL_ASSIGN(const sandbox::GuestFrame answer, guest_->wait(kFreezeMs));
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(answer.payload.data()), answer.payload.size()});
    const auto reason = static_cast<int>(reader.u32() & 0xfff);
    if (answer.type != protocol::FrameType::kFrozen || reason != 0) {
      return Error{
          Code::kConflict, reason, "the sandbox " + record.id + " does not stand still", {}};
    }
    return {};
  }

  void thaw() {
    if (group_.has_value()) {
      (void)group_->thaw();
    }
    guard_.reset();
    if (guest_.has_value()) {
      (void)guest_->send(1, protocol::FrameType::kThaw);
      guest_.reset();
    }
    lock_.reset();
  }

 private:
  Status freeze_group(const storage::Home& home, const storage::BoxRecord& record) {
    CARREL_ASSIGN(kernel::CgroupLayout layout, find_groups(home, record.cgroup_parent));
    layout_ = std::make_unique<kernel::CgroupLayout>(std::move(layout));
    CARREL_ASSIGN(kernel::Cgroup whole,
                  kernel::Cgroup::open(*layout_, record.id, kernel::CgroupOwnership::kBorrowed));
    CARREL_ASSIGN(kernel::Cgroup work,
                  whole.open_subgroup(kWorkLeaf, kernel::CgroupOwnership::kBorrowed));
    group_.emplace(std::move(work));
    CARREL_ASSIGN(Guard guard, Guard::start(*group_));
    guard_.emplace(std::move(guard));
    Status frozen = group_->freeze();
    if (!frozen.ok()) {
      (void)group_->thaw();
      guard_.reset();
    }
    return frozen;
  }

  UniqueFd lock_;
  std::unique_ptr<kernel::CgroupLayout> layout_;
  std::optional<kernel::Cgroup> group_;
  std::optional<Guard> guard_;
  std::optional<sandbox::GuestStream> guest_;
};

BoxWriters::BoxWriters(const storage::Home& home, std::vector<storage::BoxRecord> boxes,
                       Watched watched)
    : home_(&home), records_(std::move(boxes)), watched_(watched) {}

BoxWriters::~BoxWriters() { BoxWriters::thaw(); }

Status BoxWriters::freeze() {
  for (const storage::BoxRecord& record : records_) {
    auto box = std::make_unique<Box>();
    if (Status frozen = box->freeze(*home_, record); !frozen.ok()) {
      thaw();
      return frozen;
    }
    frozen_.push_back(std::move(box));
  }
  return {};
}

std::optional<storage::KeptWatch> BoxWriters::take_watch() {
  return records_.size() == 1 ? native::take_watch(*home_, records_.front().id) : std::nullopt;
}

void BoxWriters::keep_watch(storage::KeptWatch watch) {
  if (records_.size() == 1) {
    native::keep_watch(*home_, records_.front().id, std::move(watch));
  }
}

void BoxWriters::thaw() {
  for (const std::unique_ptr<Box>& box : frozen_) {
    box->thaw();
  }
  frozen_.clear();
}

}  // namespace carrel::native
