#include "backends/native/remains.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "backends/native/launch.h"
#include "base/files.h"
#include "sandbox/guest_stream.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

Result<UniqueFd> open_process(const storage::BoxRecord& record) {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, record.pid, 0)));
  // The pid could have become another process's between the record and now, but not after this.
  if (!process.valid() || !storage::is_alive(record)) {
    return Error{Code::kGone, 0, "the sandbox has ended", {}};
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

}  // namespace

Status bury(storage::Home& home, const std::string& id, const std::string& cgroup_parent,
            const std::string& reason) {
  policy::Spec spec;
  spec.cgroup_parent = cgroup_parent;
  CARREL_ASSIGN(HostSetup host, look_at_setup(home, spec));
  CARREL_TRY(clean_up(home, host.cgroups, id));
  CARREL_TRY(storage::remove_box(home, id));
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  CARREL_ASSIGN(auto row, state.find(id));
  if (row.has_value() && row->state != "ended") {
    CARREL_TRY(state.set_ended(id, reason));
    CARREL_TRY(state.forget_old(1000));
    storage::add_event(home, storage::stop_event(id, reason));
  }
  return {};
}

Status remove_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                      const std::string& reason) {
  auto process = open_process(record);
  if (process.ok()) {
    // The reason is noted first: whoever sees the process end notes one only if there is none.
    auto state = storage::State::open(home);
    if (state.ok()) {
      CARREL_TRY(state.value().set_ended(record.id, reason));
      storage::add_event(home, storage::stop_event(record.id, reason));
    }
    if (grace_ms > 0) {
      ask_to_stop(home, record, grace_ms);
      wait_for_end(process.value(), grace_ms + 200);
    }
    if (::syscall(SYS_pidfd_send_signal, process.value().get(), SIGKILL, nullptr, 0) != 0 &&
        errno != ESRCH) {
      return system_error("end sandbox " + record.id);
    }
    if (!wait_for_end(process.value(), 10'000)) {
      return Error{Code::kTimeout, 0, "sandbox " + record.id + " does not end", {}};
    }
  }
  return bury(home, record.id, record.cgroup_parent, reason);
}

void sweep_boxes(storage::Home& home) {
  for (const std::string& id : storage::box_ids(home)) {
    auto record = storage::read_record(home, id);
    if (record.ok() && storage::is_alive(record.value())) {
      continue;
    }
    // Whoever makes a sandbox, or is burying it, holds a lock on its directory.
    auto directory = open_at(home.boxes(), id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!directory.ok() || ::flock(directory.value().get(), LOCK_EX | LOCK_NB) != 0) {
      continue;
    }
    (void)bury(home, id, record.ok() ? record.value().cgroup_parent : std::string(),
               "its first process ended");
  }
}

}  // namespace carrel::native
