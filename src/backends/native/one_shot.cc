#include "backends/native/one_shot.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "backends/native/launch.h"
#include "backends/native/remains.h"
#include "base/files.h"
#include "storage/events.h"

namespace carrel::native {

namespace {

// Ends the sandbox and waits until its first process is gone: then the kernel has ended every
// other one, too.
void end_sandbox(Launched& launched) {
  ::kill(launched.pid, SIGKILL);
  launched.stream.close();
  while (::waitpid(launched.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// What the control group knows and the command's own end does not tell. Returns how much memory
// was used at most, 0 where nobody counted.
std::uint64_t add_group_facts(const kernel::Cgroup& group, sandbox::ExecResult& result) {
  result.oom_killed = result.oom_killed || group.oom_kills() > 0;
  result.process_limit = result.process_limit || group.pids_limit_hits() > 0;
  return group.usage().memory_peak_bytes.value_or(0);
}

// A limit that ended or hindered the command is part of its result, and an event.
void tell_limits(const storage::Home& home, const std::string& id, const policy::Limits& limits,
                 std::uint64_t peak, sandbox::ExecResult& result) {
  if (result.oom_killed) {
    result.reason =
        "out of memory: the limit is " + std::to_string(limits.memory_bytes >> 20) + " MiB";
    storage::add_event(home, storage::limit_event(id, "memory", limits.memory_bytes,
                                                  std::max(peak, limits.memory_bytes)));
  }
  if (result.process_limit) {
    sandbox::add_process_limit(result, limits.pids);
    storage::add_event(home, storage::limit_event(id, "pids", limits.pids, limits.pids));
  }
}

// What a crash would leave behind is found by its mark. Where there is no control group and no
// range of ids, there is nothing to find.
Result<UniqueFd> leave_mark(storage::Home& home, const std::string& id, const policy::Spec& spec) {
  CARREL_ASSIGN(UniqueFd mark, home.claim_once(id));
  CARREL_TRY(write_all(mark.get(), spec.cgroup_parent));  // for whoever cleans up after us
  return mark;
}

// The host is looked at while the guest builds its root, except where the guest has to be born in
// its control group.
struct Making {
  UniqueFd mark;
  HostSetup host;  // the groups in `box` refer to it
  std::optional<Launched> box;
};

Status make(storage::Home& home, LaunchRequest request, Making& making) {
  const std::string id = request.id;
  const policy::Spec spec = request.spec;
  const Placing placing = kernel::has_only_v2() ? Placing::kAtBirth : Placing::kLater;
  SandboxGroups groups;
  auto look = [&]() -> Status {
    CARREL_ASSIGN(making.host, look_at_setup(home, spec, Look::kOnlyLimits));
    if (!making.mark.valid() && !making.host.cgroups.hierarchies().empty()) {
      CARREL_ASSIGN(making.mark, leave_mark(home, id, spec));
    }
    CARREL_ASSIGN(groups, make_groups(making.host.cgroups, id, spec.limits, Lifetime::kOneShot,
                                      placing));
    return {};
  };
  if (::geteuid() == 0) {
    CARREL_ASSIGN(making.mark, leave_mark(home, id, spec));
  }
  if (placing == Placing::kAtBirth) {
    CARREL_TRY(look());
  }
  CARREL_ASSIGN(Launch launch, Launch::begin(home, std::move(request), groups.clone_into));
  if (placing == Placing::kLater) {
    CARREL_TRY(look());
  }
  CARREL_ASSIGN(making.box, launch.finish(making.host, std::move(groups)));
  return {};
}

}  // namespace

Result<sandbox::ExecResult> run_once(storage::Home& home, const OneShot& job,
                                     const sandbox::CommandIo& io,
                                     const EnforcementListener& listener) {
  const auto input = io.input >= 0 ? sandbox::Input::kFollows : sandbox::Input::kNone;
  CARREL_ASSIGN(std::string start, sandbox::encode_start(job.command, input));
  const std::string id = storage::make_id();
  LaunchRequest request;
  request.id = id;
  request.spec = job.spec;
  Making making;
  Status made = make(home, std::move(request), making);
  sweep_quickly(home);  // while the guest builds its room
  if (!made.ok()) {
    home.release_once(id);
    return made.error();
  }
  Launched& box = *making.box;
  if (listener) {
    listener(box.enforcement);
  }
  auto result = sandbox::serve_command(box.stream, protocol::FrameType::kStart, start,
                                       job.command.timeout, io);
  end_sandbox(box);
  std::uint64_t peak = 0;
  if (box.groups.box.has_value()) {
    if (result.ok()) {
      peak = add_group_facts(*box.groups.box, result.value());
    } else if (result.error().code == Code::kGone && box.groups.box->oom_kills() > 0) {
      result.error().message = "the sandbox ended: out of memory";
      result.error().code = Code::kResource;
    }
    Status removed = box.groups.box->remove();
    if (!removed.ok()) {
      return removed.error();
    }
  }
  if (result.ok()) {
    tell_limits(home, id, job.spec.limits, peak, result.value());
  }
  if (box.id_range.has_value()) {
    home.release_ids(box.id, *box.id_range);
  }
  home.release_once(id);
  return result;
}

}  // namespace carrel::native
