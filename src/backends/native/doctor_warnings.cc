#include "backends/native/doctor_warnings.h"

#include <optional>
#include <utility>

#include "backends/native/doctor_cause.h"
#include "backends/native/logout.h"

namespace carrel::native {

namespace {

Check fine(std::string name, std::string detail) {
  return Check{std::move(name), CheckStatus::kOk, std::move(detail), {}};
}

Check warning(std::string name, std::string detail, std::string fix) {
  return Check{std::move(name), CheckStatus::kWarning, std::move(detail), std::move(fix)};
}

Check core_pattern(const DoctorFacts& facts) {
  if (!facts.settings.core_pattern.starts_with('|')) {
    return fine("core_pattern", "crashes start no program of the host's");
  }
  return warning("core_pattern",
                 "a crash in any container starts a program as the host's root; sandboxes are kept "
                 "from it by a core limit of 1",
                 sysctl_fix(facts.around, "kernel.core_pattern=core"));
}

// The settings of fs.protected_*, as one check that names those that are off.
Check protected_files(const DoctorFacts& facts) {
  const KernelSettings& settings = facts.settings;
  std::string off;
  std::string fix;
  auto look = [&](const char* name, const std::optional<long>& value) {
    if (value == 0) {
      off += (off.empty() ? "" : ", ") + std::string(name);
      fix += std::string(" fs.protected_") + name + "=1";
    }
  };
  look("symlinks", settings.protected_symlinks);
  look("hardlinks", settings.protected_hardlinks);
  look("fifos", settings.protected_fifos);
  look("regular", settings.protected_regular);
  if (off.empty()) {
    return fine("protected_files", "links and files in shared directories are protected");
  }
  return warning("protected_files",
                 "fs.protected_* is off for " + off +
                     ": another user's files in /tmp can mislead programs of the host",
                 sysctl_fix(facts.around, fix.substr(1)));
}

Check modules(const DoctorFacts& facts) {
  std::string names;
  for (const std::string& name : facts.settings.risky_modules) {
    names += (names.empty() ? "" : " ") + name;
  }
  if (names.empty()) {
    return fine("modules", "no user can have parts of the kernel loaded that often had holes");
  }
  return warning("modules",
                 "every user can have these parts of the kernel loaded, which often had holes: " +
                     names + "; sandboxes cannot",
                 "for m in " + names +
                     "; do echo install $m /bin/false; done | sudo tee "
                     "/etc/modprobe.d/carrel.conf");
}

Check lingering(const DoctorFacts& facts) {
  const Surroundings& around = facts.around;
  if (around.uid == 0 || !around.systemd) {
    return fine("linger", "no logout ends sandboxes here");
  }
  if (around.lingers) {
    return fine("linger", "yes: sandboxes go on after the logout");
  }
  const LogoutFacts logout = logout_effect(around);
  if (logout.effect == Logout::kLeavesAlone) {
    return fine("linger", "no; logind leaves processes alone at the logout");
  }
  return warning("linger", "no: long-lived sandboxes end when you log out", logout.fix);
}

}  // namespace

std::vector<Check> look_at_settings(const DoctorFacts& facts) {
  const KernelSettings& settings = facts.settings;
  const Surroundings& around = facts.around;
  std::vector<Check> checks;
  // One row for a setting that is a single number.
  auto number = [&](const char* name, const std::optional<long>& value, long bad,
                    const char* good_text, const char* bad_text, const std::string& fix) {
    checks.push_back(value == bad ? warning(name, bad_text, fix) : fine(name, good_text));
  };
  checks.push_back(core_pattern(facts));
  checks.push_back(settings.swap_on
                       ? warning("swap",
                                 "swap is on: what a sandbox holds in memory can reach the disk",
                                 "sudo swapoff -a")
                       : fine("swap", "off"));
  number("userfaultfd", settings.unprivileged_userfaultfd, 1, "only for root",
         "every user may stop the kernel at a page fault, which makes kernel bugs easier to use; "
         "sandboxes cannot",
         sysctl_fix(around, "vm.unprivileged_userfaultfd=0"));
  number("io_uring", settings.io_uring_disabled, 0, "restricted, or not in this kernel",
         "every user may use io_uring, a frequent source of kernel bugs; sandboxes cannot",
         sysctl_fix(around, "kernel.io_uring_disabled=2"));
  number("bpf", settings.unprivileged_bpf_disabled, 0, "only for root",
         "every user may load BPF programs into the kernel; sandboxes cannot",
         sysctl_fix(around, "kernel.unprivileged_bpf_disabled=2"));
  number("ptrace_scope", settings.ptrace_scope, 0, "restricted, or not in this kernel",
         "every process may trace its user's other ones, carrel's too; sandboxes cannot",
         sysctl_fix(around, "kernel.yama.ptrace_scope=1"));
  checks.push_back(protected_files(facts));
  number("ksm", settings.ksm_run, 1, "equal pages of memory are not merged",
         "equal pages of memory are merged: how long a write takes tells what others hold",
         "echo 2 | sudo tee /sys/kernel/mm/ksm/run");
  number("smt", settings.smt_active, 1, "no core is shared by two threads",
         "sandboxes share cores with other programs, and so a side channel",
         "echo off | sudo tee /sys/devices/system/cpu/smt/control");
  checks.push_back(modules(facts));
  checks.push_back(lingering(facts));
  return checks;
}

}  // namespace carrel::native
