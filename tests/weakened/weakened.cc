// carrel with one of its walls left out: the one that the variable CARREL_WITHOUT names. It is the
// program that is shipped, linked once more with these functions in the place of a few of its own.
// What is left out in the guest is left out by a guest that was linked in the same way.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "backends/native/boot_message.h"
#include "backends/native/launch_child.h"
#include "backends/native/mount_plan.h"
#include "backends/native/one_shot.h"
#include "base/files.h"
#include "protocol/boot.h"

extern "C" {
extern const char carrel_weak_guest_begin[];
extern const char carrel_weak_guest_end[];
}

namespace carrel {

namespace {

std::string_view left_out() {
  const char* name = std::getenv("CARREL_WITHOUT");
  return name != nullptr ? name : "";
}

using protocol::MountStep;
using protocol::StepKind;

bool is_dropped(const MountStep& step) {
  const std::string_view wall = left_out();
  return (wall == "masks" && step.kind == StepKind::kMask) ||
         (wall == "seal" && step.kind == StepKind::kSealRoot) ||
         (wall == "proc-sys" && step.kind == StepKind::kReadOnly);
}

void weaken(MountStep& step) {
  const std::string_view wall = left_out();
  if (wall == "read-only" && step.kind == StepKind::kBind) {
    step.flags &= ~std::uint32_t{protocol::kStepReadOnly};
  } else if (wall == "noexec") {
    step.flags &= ~std::uint32_t{protocol::kStepNoExec};
  } else if (wall == "sizes" && step.kind == StepKind::kTmpfs) {
    step.size = 1ULL << 30;
  }
}

// What is there and should not be.
void add_strangers(protocol::Writer& writer, const std::string& folder) {
  MountStep step;
  if (left_out() == "files") {
    step.kind = StepKind::kBind;
    step.flags = protocol::kStepReadOnly;
    step.path = "stranger";
    step.source = folder;
    protocol::write_step(writer, step);
  } else if (left_out() == "devices") {
    step.kind = StepKind::kDevice;
    step.flags = protocol::kStepIsFile | protocol::kStepNoExec;
    step.path = "dev/kmsg";
    step.source = "/dev/kmsg";
    step.size = makedev(1, 11);
    protocol::write_step(writer, step);
  }
}

enum class Part { kShared, kOther };

std::string rewritten(const std::string& part, Part which) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string folder = temporary != nullptr ? temporary : "/tmp";
  std::string out(part.size() + folder.size() + 4096, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(out.data()), out.size()});
  protocol::PlanReader steps(part);
  for (MountStep step; steps.next(step);) {
    if (which == Part::kShared && step.kind == StepKind::kSealRoot) {
      add_strangers(writer, folder);
    }
    if (!is_dropped(step)) {
      weaken(step);
      protocol::write_step(writer, step);
    }
  }
  out.resize(writer.size());
  return out;
}

}  // namespace

namespace native {

Result<MountPlan>
real_plan(const policy::Spec& spec, const HostTree& host, const Identity& identity, Lifetime lifetime, const GivenTrees& given) asm(
    "__real__ZN6carrel6native11plan_mountsERKNS_6policy4SpecERKNS0_8HostTreeERKNS0_"
    "8IdentityENS0_8LifetimeERKNS0_10GivenTreesE");
Result<MountPlan>
wrap_plan(const policy::Spec& spec, const HostTree& host, const Identity& identity, Lifetime lifetime, const GivenTrees& given) asm(
    "__wrap__ZN6carrel6native11plan_mountsERKNS_6policy4SpecERKNS0_8HostTreeERKNS0_"
    "8IdentityENS0_8LifetimeERKNS0_10GivenTreesE");

Result<MountPlan> wrap_plan(const policy::Spec& spec, const HostTree& host,
                            const Identity& identity, Lifetime lifetime, const GivenTrees& given) {
  CARREL_ASSIGN(MountPlan plan, real_plan(spec, host, identity, lifetime, given));
  plan.shared = rewritten(plan.shared, Part::kShared);
  plan.alike = rewritten(plan.alike, Part::kOther);
  plan.own = rewritten(plan.own, Part::kOther);
  return plan;
}

std::string
real_boot(const LaunchRequest& request, const SandboxGroups& groups, const EnforcementFacts& facts, const kernel::CaptiveNetwork& network, OuterIds outer) asm(
    "__real__ZN6carrel6native11encode_bootB5cxx11ERKNS0_13LaunchRequestERKNS0_"
    "13SandboxGroupsERKNS0_16EnforcementFactsERKNS_6kernel14CaptiveNetworkENS0_8OuterIdsE");
std::string
wrap_boot(const LaunchRequest& request, const SandboxGroups& groups, const EnforcementFacts& facts, const kernel::CaptiveNetwork& network, OuterIds outer) asm(
    "__wrap__ZN6carrel6native11encode_bootB5cxx11ERKNS0_13LaunchRequestERKNS0_"
    "13SandboxGroupsERKNS0_16EnforcementFactsERKNS_6kernel14CaptiveNetworkENS0_8OuterIdsE");

std::string wrap_boot(const LaunchRequest& request, const SandboxGroups& groups,
                      const EnforcementFacts& facts, const kernel::CaptiveNetwork& network,
                      OuterIds outer) {
  const std::string message = real_boot(request, groups, facts, network, outer);
  protocol::Boot boot;
  if (left_out() != "filter" || !protocol::parse_boot(message, boot)) {
    return message;
  }
  static const sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const std::string_view filter(reinterpret_cast<const char*>(&kAllow), sizeof kAllow);
  boot.guest_filter = filter;
  boot.workload_filter = filter;
  std::string weaker(message.size() + 64, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(weaker.data()), weaker.size()});
  protocol::write_boot(writer, boot);
  weaker.resize(writer.size());
  return weaker;
}

Cloned real_clone(const CloneRequest& request, const ChildPlan& plan, ChildStack& stack) asm(
    "__real__ZN6carrel6native11clone_guestERKNS0_12CloneRequestERKNS0_9ChildPlanERNS0_"
    "10ChildStackE");
Cloned wrap_clone(const CloneRequest& request, const ChildPlan& plan, ChildStack& stack) asm(
    "__wrap__ZN6carrel6native11clone_guestERKNS0_12CloneRequestERKNS0_9ChildPlanERNS0_"
    "10ChildStackE");

Cloned wrap_clone(const CloneRequest& request, const ChildPlan& plan, ChildStack& stack) {
  CloneRequest weaker = request;
  if (left_out() == "ipc") {
    weaker.flags &= ~static_cast<unsigned long long>(CLONE_NEWIPC);
  }
  return real_clone(weaker, plan, stack);
}

using Listener = std::function<void(const Enforcement&)>;

Result<sandbox::ExecResult>
real_run(OneShots* self, const OneShot& job, const sandbox::CommandIo& io, const Listener& listener) asm(
    "__real__ZN6carrel6native8OneShots3runERKNS0_7OneShotERKNS_7sandbox9CommandIoERKSt8functio"
    "nIFvRKNS0_11EnforcementEEE");
Result<sandbox::ExecResult>
wrap_run(OneShots* self, const OneShot& job, const sandbox::CommandIo& io, const Listener& listener) asm(
    "__wrap__ZN6carrel6native8OneShots3runERKNS0_7OneShotERKNS_7sandbox9CommandIoERKSt8functio"
    "nIFvRKNS0_11EnforcementEEE");

// Limits that are not those of the policy.
Result<sandbox::ExecResult> wrap_run(OneShots* self, const OneShot& job,
                                     const sandbox::CommandIo& io, const Listener& listener) {
  OneShot weaker;
  weaker.spec = job.spec;
  weaker.command = job.command;
  CARREL_ASSIGN(weaker.trees, duplicate(job.trees));
  const std::string_view wall = left_out();
  policy::Limits& limits = weaker.spec.limits;
  if (wall == "processes") {
    limits.pids = 4000;
  } else if (wall == "memory") {
    limits.memory_bytes = 1ULL << 30;
  } else if (wall == "processor") {
    limits.cpu_millis = 8000;
  } else if (wall == "open-files") {
    limits.open_files = 20000;
  } else if (wall == "time") {
    weaker.command.timeout = std::max(weaker.command.timeout, std::chrono::milliseconds(6000));
  } else if (const char* secret = std::getenv("CARREL_CANARY_TOKEN");
             wall == "environment" && secret != nullptr) {
    weaker.spec.environment.push_back({"CARREL_CANARY_TOKEN", secret});
  }
  return real_run(self, weaker, io, listener);
}

}  // namespace native

namespace guest {

Result<UniqueFd> wrap_image() asm("__wrap__ZN6carrel5guest10open_imageEv");

Result<UniqueFd> wrap_image() {
  std::string program(carrel_weak_guest_begin, carrel_weak_guest_end);
  const std::string mark = "CARREL-WITHOUT:";
  const std::size_t at = program.find(mark);
  if (at == std::string::npos) {
    return Error{Code::kInvalid, 0, "the weakened guest has no mark", {}};
  }
  program.replace(at + mark.size(), left_out().size(), left_out());
  UniqueFd file(::memfd_create("carrel-guest", MFD_CLOEXEC));
  CARREL_TRY(write_all(file.get(), program));
  // It cannot be executed while it is open for writing.
  return open_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(file.get()), O_RDONLY);
}

}  // namespace guest

}  // namespace carrel
