#include "backends/native/one_shot.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "backends/native/launch.h"
#include "backends/native/remains.h"
#include "backends/native/scope.h"
#include "base/files.h"

namespace carrel::native {

namespace {

// Ends the sandbox and waits until its first process is gone: then the kernel has ended every
// other one, too.
void end_sandbox(Launched& launched) {
  ::syscall(SYS_pidfd_send_signal, launched.pidfd.get(), SIGKILL, nullptr, 0);
  launched.stream.close();
  while (::waitpid(launched.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// What the control group knows and the command's own end does not tell.
void add_group_facts(const kernel::Cgroup& group, const policy::Limits& limits,
                     sandbox::ExecResult& result) {
  if (!result.oom_killed && group.oom_kills() > 0) {
    result.oom_killed = true;
    result.reason = "out of memory: the limit is " + std::to_string(limits.memory_bytes >> 20) +
                    " MiB";
  }
  if (result.exit_code != 0 && !result.oom_killed && !result.timed_out &&
      group.pids_limit_hits() > 0) {
    result.reason += (result.reason.empty() ? "" : "; ") +
                     std::string("the limit of ") + std::to_string(limits.pids) +
                     " processes was reached";
  }
}

// Whether a limit was demanded that only a control group can hold, and there is none for it.
bool lacks_required_limit(const policy::Spec& spec, const kernel::CgroupLayout& groups) {
  return std::any_of(spec.required.begin(), spec.required.end(), [&](policy::Protection one) {
    return (one == policy::Protection::kMemory &&
            groups.source(kernel::Controller::kMemory) == kernel::CgroupSource::kNone) ||
           (one == policy::Protection::kCpu &&
            groups.source(kernel::Controller::kCpu) == kernel::CgroupSource::kNone);
  });
}

// The service manager takes milliseconds to answer, so it is asked only when it has to be.
Status ask_for_limits(const storage::Home& home, LaunchRequest& request, HostSetup& host) {
  if (!request.spec.cgroup_parent.empty()) {
    return {};
  }
  OwnScope scope = enter_scope(home, ScopeUse::kOneShot);
  request.why_no_scope = scope.why_not;
  if (scope.group.empty()) {
    return {};
  }
  request.spec.cgroup_parent = scope.group;
  CARREL_ASSIGN(host, look_at_setup(home, request.spec));
  return {};
}

}  // namespace

Result<sandbox::ExecResult> run_once(storage::Home& home, const OneShot& job,
                                     const sandbox::CommandIo& io,
                                     const EnforcementListener& listener) {
  LaunchRequest request;
  request.spec = job.spec;
  CARREL_ASSIGN(HostSetup host, look_at_setup(home, request.spec, KeepersScope::kUse));
  if (lacks_required_limit(request.spec, host.cgroups)) {
    CARREL_TRY(ask_for_limits(home, request, host));
  }
  const bool in_keepers_scope =
      request.spec.cgroup_parent.empty() && !host.cgroups.parent().empty();
  const auto input = io.input >= 0 ? sandbox::Input::kFollows : sandbox::Input::kNone;
  CARREL_ASSIGN(std::string start, sandbox::encode_start(job.command, input));
  const std::string id = storage::make_id();
  request.id = id;
  // Where there is no control group and no range of ids, a crash leaves nothing to clean up.
  UniqueFd mark;
  if (::geteuid() == 0 || !host.cgroups.hierarchies().empty()) {
    CARREL_ASSIGN(mark, home.claim_once(id));
    CARREL_TRY(write_all(mark.get(), host.cgroups.parent()));  // for whoever cleans up after us
  }
  auto launched = launch(home, host, std::move(request));
  if (!launched.ok() && in_keepers_scope) {  // it may just have ended
    LaunchRequest again;
    again.id = id;
    again.spec = job.spec;
    CARREL_ASSIGN(host, look_at_setup(home, job.spec));
    launched = launch(home, host, std::move(again));
  }
  sweep_quickly(home);  // while the guest builds its room
  if (!launched.ok()) {
    home.release_once(id);
    return launched.error();
  }
  Launched& box = launched.value();
  if (listener) {
    listener(box.enforcement);
  }
  auto result = sandbox::serve_command(box.stream, protocol::FrameType::kStart, start,
                                       job.command.timeout, io);
  end_sandbox(box);
  if (box.groups.box.has_value()) {
    if (result.ok()) {
      add_group_facts(*box.groups.box, job.spec.limits, result.value());
    } else if (result.error().code == Code::kGone && box.groups.box->oom_kills() > 0) {
      result.error().message = "the sandbox ended: out of memory";
      result.error().code = Code::kResource;
    }
    Status removed = box.groups.box->remove();
    if (!removed.ok()) {
      return removed.error();
    }
  }
  if (box.id_range.has_value()) {
    home.release_ids(box.id, *box.id_range);
  }
  home.release_once(id);
  return result;
}

}  // namespace carrel::native
