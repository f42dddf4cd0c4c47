#include "backends/native/remains.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>

#include "backends/native/keeper_client.h"
#include "backends/native/launch.h"
#include "backends/native/places.h"
#include "backends/native/strays.h"
#include "base/files.h"
#include "policy/spec_json.h"
#include "sandbox/guest_stream.h"
#include "storage/box_use.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

constexpr int kKeptEnded = 1000;   // rows of ended sandboxes in the database
constexpr int kEndMs = 10'000;     // for a killed first process and everything below it
constexpr int kOthersMs = 15'000;  // for another `rm` of the same sandbox
constexpr int kKeeperMs = 500;     // for the keeper, which knows best why a sandbox ended

// kGone once it has ended; another error means that it may still be there.
Result<UniqueFd> open_process(const storage::BoxRecord& record) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, record.pid, 0)));
  const int reason = errno;
  // The pid could have become another process's between the record and now, but not after this.
  if (!storage::is_alive(record)) {
    return Error{Code::kGone, 0, "the sandbox has ended", {}};
  }
  if (!process.valid()) {
    return system_error(reason, "hold the first process of sandbox " + record.id);
  }
  return process;
}

bool wait_for_end(const UniqueFd& process, int timeout_ms) {
  pollfd wait{process.get(), POLLIN, 0};
  return ::poll(&wait, 1, timeout_ms) == 1;
}

// Asks the guest to let everybody stop by themselves. It may be unable to answer: that is fine.
void ask_to_stop(storage::Home& home, const storage::BoxRecord& record, int grace_ms) {
  auto socket = storage::connect_box(home, record);
  if (!socket.ok()) {
    return;
  }
  sandbox::GuestStream stream(std::move(socket.value()));
  if (!stream.greet(record.id, 500).ok()) {
    return;
  }
  std::array<unsigned char, 4> buffer{};
  protocol::Writer writer(buffer);
  writer.u32(static_cast<std::uint32_t>(grace_ms));
  (void)stream.send(0, protocol::FrameType::kShutdown,
                    {reinterpret_cast<const char*>(buffer.data()), writer.size()});
}

Status end_process(const storage::BoxRecord& record, const UniqueFd& process) {
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH) {
    return system_error("end sandbox " + record.id);
  }
  if (!wait_for_end(process, kEndMs)) {
    return Error{Code::kTimeout, 0, "sandbox " + record.id + " does not end", {}};
  }
  return {};
}

// Where the groups of a sandbox are: its record knows, and before there is one, a note or its row.
std::string parent_of(storage::Home& home, const std::string& id,
                      const std::optional<storage::SandboxRow>& row) {
  if (auto record = storage::read_record(home, id); record.ok()) {
    return record.value().cgroup_parent;
  }
  if (std::string noted = storage::noted_groups(home, id); !noted.empty()) {
    return noted;
  }
  if (row.has_value()) {
    if (auto spec = policy::spec_from_json(row->spec); spec.ok()) {
      return spec.value().cgroup_parent;
    }
  }
  return {};
}

// An end that nobody wanted, of a sandbox that was whole: who saw it last may not have known that
// its lease was over.
Ending judge(const storage::Home& home, const storage::SandboxRow& row, Ending ending) {
  constexpr std::int64_t kClocksDifferMs = 1000;
  const std::int64_t lease = storage::noted_lease(home, row.id);
  if (ending.how == Ending::How::kDied && lease != 0 &&
      storage::wall_clock_ms() >= lease - kClocksDifferMs) {
    return {"its lease ran out", Ending::How::kOver};
  }
  if (const std::string noted = storage::noted_end(home, row.id); !noted.empty()) {
    return {noted, Ending::How::kOver};
  }
  return ending;
}

// With the lock of the box held.
Status bury_held(storage::Home& home, const std::string& id, const Ending& seen) {
  Status first;
  auto note = [&](Status status) {
    if (first.ok() && !status.ok()) {
      first = std::move(status);
    }
  };
  auto state = storage::State::open(home);
  std::optional<storage::SandboxRow> row;
  if (!state.ok()) {
    note(state.error());
  } else if (auto found = state.value().find(id); found.ok()) {
    row = std::move(found.value());
  } else {
    note(found.error());
  }
  auto groups = find_groups(home, parent_of(home, id, row));
  if (!groups.ok()) {
    return groups.error();
  }
  // What cannot be ended keeps its box, so that the next sweep finds it.
  CARREL_TRY(clean_up(home, groups.value(), id));
  // One that is stopped stays so: somebody was killed over the last of its files, or before he
  // began to start it again.
  if (row.has_value() && row->state != "ended" && row->state != "stopped") {
    const Ending ending = judge(home, *row, seen);
    if (const auto wake = storage::noted_stop(home, id); wake.has_value()) {
      note(state.value().set_stopped(id, ending.reason, *wake));
    } else if (ending.how == Ending::How::kDied && is_made_again(*row)) {
      note(state.value().set_stopped(id, ending.reason, storage::Wake::kWhenUsed));
    } else {
      note(state.value().set_ended(id, ending.reason));
      note(state.value().forget_old(kKeptEnded));
      storage::drop_wish(home, id);
    }
    storage::add_event(home, storage::stop_event(id, ending.reason));
  }
  note(storage::remove_box(home, id));
  return first;
}

// Leaves the box to the keeper, if there is one and it is at work.
void wait_for_keeper(storage::Home& home, const std::string& id, int& patience_ms) {
  constexpr int kStepMs = 5;
  while (patience_ms > 0 && keeper_is_alive(home) &&
         ::faccessat(home.boxes(), id.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    ::usleep(kStepMs * 1000);
    patience_ms -= kStepMs;
  }
}

void sweep_box(storage::Home& home, const std::string& id, int& patience_ms) {
  auto alive = [&](const Result<storage::BoxRecord>& record) {
    return record.ok() && storage::is_alive(record.value());
  };
  auto record = storage::read_record(home, id);
  if (alive(record) && storage::noted_end(home, id).empty()) {
    return;
  }
  if (record.ok() && !alive(record)) {
    wait_for_keeper(home, id, patience_ms);
  }
  // Whoever makes, ends or buries a sandbox holds the lock; what was read before it may be old.
  auto lock = storage::lock_box(home, id, 0);
  if (!lock.ok()) {
    return;
  }
  record = storage::read_record(home, id);
  if (alive(record) && storage::noted_end(home, id).empty()) {
    return;
  }
  const Ending ending = record.ok() ? Ending{"its first process ended", Ending::How::kDied}
                                    : Ending{"it was never finished"};
  if (!record.ok()) {
    record = storage::read_draft(home, id);
  }
  if (record.ok()) {
    auto process = open_process(record.value());
    const bool ended = process.ok() ? end_process(record.value(), process.value()).ok()
                                    : process.error().code == Code::kGone;
    if (!ended) {
      return;
    }
  }
  (void)bury_held(home, id, ending);
}

void sweep_each_box(storage::Home& home, Sweeper who) {
  int patience_ms = who == Sweeper::kKeeper ? 0 : kKeeperMs;  // for all of them together
  for (const std::string& id : storage::box_ids(home)) {
    sweep_box(home, id, patience_ms);
  }
}

}  // namespace

Ending ending_of(int status) {
  // Whoever built its walls tells a signal as a shell does.
  constexpr int kBySignal = 128;
  const int told = WIFEXITED(status) ? WEXITSTATUS(status) - kBySignal : 0;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : told;
  if (signal > 0) {
    return {"its first process was killed by signal " + std::to_string(signal), Ending::How::kDied};
  }
  switch (WEXITSTATUS(status)) {
    case 0:
      return {"it was shut down"};
    case 3:
      return {"its lease ran out"};
    default:
      return {"its first process ended with status " + std::to_string(WEXITSTATUS(status)),
              Ending::How::kDied};
  }
}

Status bury(storage::Home& home, const std::string& id, const Ending& ending, int patience_ms) {
  auto lock = storage::lock_box(home, id, patience_ms);
  if (!lock.ok()) {
    return lock.error().code == Code::kNotFound ? Status{} : Status{lock.error()};
  }
  return bury_held(home, id, ending);
}

namespace {

// What is left of the sandbox afterwards.
struct After {
  std::optional<storage::Wake> stopped;  // none: it has ended
};

Status end_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                   const std::string& reason, const After& after) {
  auto lock = storage::lock_box(home, record.id, kOthersMs);
  if (!lock.ok()) {
    return lock.error().code == Code::kNotFound ? Status{} : Status{lock.error()};
  }
  CARREL_TRY(after.stopped.has_value() ? storage::note_stop(home, record.id, *after.stopped)
                                       : storage::drop_stop(home, record.id));
  if (auto process = open_process(record); process.ok()) {
    // From here on it ends, whoever does it. A full disk is no reason to let it live.
    (void)storage::note_end(home, record.id, reason);
    // What stands still hears nothing.
    if (grace_ms > 0 && !storage::noted_pause(home, record.id).has_value()) {
      ask_to_stop(home, record, grace_ms);
      wait_for_end(process.value(), grace_ms + 200);
    }
    CARREL_TRY(end_process(record, process.value()));
  } else if (process.error().code != Code::kGone) {
    return process.error();
  }
  return bury_held(home, record.id, {reason});
}

}  // namespace

Status remove_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                      const std::string& reason) {
  return end_sandbox(home, record, grace_ms, reason, {});
}

Status stop_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                    const std::string& reason, storage::Wake wake) {
  return end_sandbox(home, record, grace_ms, reason, {wake});
}

void end_without_home(storage::Home& home, const std::string& id, const UniqueFd& process) {
  if (process.valid() &&
      ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0) {
    (void)wait_for_end(process, kEndMs);
  }
  if (auto groups = find_groups(home, {}); groups.ok()) {
    (void)clean_up(home, groups.value(), id);
  }
}

void sweep_one_shots(storage::Home& home) {
  for (storage::Home::Abandoned& mark : home.abandoned()) {
    // The mark holds the parent of the groups, if the command was given one.
    auto parent = read_all(mark.lock.get(), 4096);
    auto groups = find_groups(home, parent.ok() ? parent.value() : std::string());
    if (groups.ok() && clean_up(home, groups.value(), mark.id).ok()) {
      home.release_once(mark.id);
    }
    mark.lock.reset();
  }
}

void sweep_boxes(storage::Home& home, Sweeper who) {
  sweep_one_shots(home);
  sweep_each_box(home, who);
  sweep_strays(home);
}

void sweep_quickly(storage::Home& home) {
  sweep_one_shots(home);
  if (keeper_is_alive(home)) {
    return;
  }
  sweep_noted_places(home);
  sweep_each_box(home, Sweeper::kCommand);
}

void sweep_walls(const storage::Home& home, sandbox::FindWalls find_walls) {
  for (const policy::Backend backend : {policy::Backend::kDocker, policy::Backend::kMicrovm}) {
    if (const sandbox::Walls* walls = find_walls(backend, {}); walls != nullptr) {
      walls->sweep(home.path() + "/run", home.label());
    }
  }
}

}  // namespace carrel::native
