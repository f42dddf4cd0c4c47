#include "verify/differences.h"

#include <algorithm>
#include <array>

namespace carrel::verify {

namespace {

using policy::Backend;

constexpr std::string_view kGvisor = "runsc";

constexpr std::string_view kBubblewrapShm =
    "bubblewrap cannot make a tmpfs noexec: /dev/shm is none";
constexpr std::string_view kBubblewrapQuota =
    "bubblewrap sets the quota of a namespace above to one, which is used up; what is tried fails "
    "as well";
constexpr std::string_view kOneId =
    "a runtime wants a root in the user namespace, and an ordinary user has one id: /proc/1 "
    "belongs to the sandbox's user, who can set its out-of-memory score; it can be neither read "
    "nor traced";
constexpr std::string_view kOpenFirst =
    "its /proc lets everybody of the sandbox's user read the map and the environment of the first "
    "process, open its pipes and set its out-of-memory score: commands can disturb each other; its "
    "memory cannot be read, and it can be neither traced nor signalled";
constexpr std::string_view kSealedQuota =
    "/proc/sys is read-only before the guest could set the quota to zero: the filter forbids it, "
    "and what is tried fails";
constexpr std::string_view kTablesOnly =
    "gVisor tells of read-only mounts in its table of mounts only, where the guest reads it; "
    "nothing there can be changed";
constexpr std::string_view kOwnSwitches =
    "the switch is of its own kernel, which has no helpers, and tracing is refused by the filter";
constexpr std::string_view kOwnDevices =
    "its /dev/fuse and /dev/net/tun are devices of its own kernel, not of the host";
constexpr std::string_view kOwnSys = "its /sys is about its own kernel, and read-only";
constexpr std::string_view kKernelsMemory =
    "what pipes and sockets hold is memory of its kernel, which the control group around it bounds "
    "(256 MiB more)";
constexpr std::string_view kOwnPages = "its huge pages are ordinary memory of the sandbox";
constexpr std::string_view kOwnClock =
    "its kernel counts waiting as processor time; the control group, or the processors that it is "
    "kept to, holds the real one";
constexpr std::string_view kTimers =
    "it does not count timers; their memory is that of the control group around it";
constexpr std::string_view kNoAmbient =
    "it tells of no ambient set, and its kernel has no capabilities above 37";
constexpr std::string_view kNoFileUser = "it tells of no user for file systems";
constexpr std::string_view kNoQuotas =
    "it has no quotas of namespaces: the filter forbids to make any";
constexpr std::string_view kMapsAnything = "it lets programs map what cannot be executed";
constexpr std::string_view kNo32Bit = "it has no 32-bit calls: they fail and harm nobody";

constexpr std::array kDifferences = {
    Difference{Backend::kBubblewrap, "", "E18_NoexecPlacesExecuteNothing", "", kBubblewrapShm},
    Difference{Backend::kBubblewrap, "", "E05_NoNamespaceCanBeMadeByQuota", "", kBubblewrapQuota},
    Difference{Backend::kOci, "", "A21_TheFirstProcessIsClosed", "", kOneId},
    Difference{Backend::kOci, "", "E05_NoNamespaceCanBeMadeByQuota", "", kSealedQuota},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/environ",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/maps",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/smaps",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/auxv",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/io",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/fd",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "not so: /proc/1/task/1/fd",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "read the link /proc/1/ns/",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "open /proc/1/ns/",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "open /proc/1/fd/",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A21_TheFirstProcessIsClosed", "write /proc/1/oom_score_adj",
               kOpenFirst},
    Difference{Backend::kOci, kGvisor, "A05_SystemFilesCannotBeChanged", "not so: / is mounted",
               kTablesOnly},
    Difference{Backend::kOci, kGvisor, "A05_SystemFilesCannotBeChanged", "not so: /usr is mounted",
               kTablesOnly},
    Difference{Backend::kOci, kGvisor, "A05_SystemFilesCannotBeChanged", "not so: /dev is mounted",
               kTablesOnly},
    Difference{Backend::kOci, kGvisor, "A05_SystemFilesCannotBeChanged", "not so: /proc/sys",
               kTablesOnly},
    Difference{Backend::kOci, kGvisor, "A11_KernelHelpersCannotBeSet", "open /proc/sysrq-trigger",
               kOwnSwitches},
    Difference{Backend::kOci, kGvisor, "A10_OnlyHarmlessDevicesExist", "not so: /dev/fuse",
               kOwnDevices},
    Difference{Backend::kOci, kGvisor, "A10_OnlyHarmlessDevicesExist", "not so: /dev/net/tun",
               kOwnDevices},
    Difference{Backend::kOci, kGvisor, "A10_OnlyHarmlessDevicesExist", "find /dev/fuse",
               kOwnDevices},
    Difference{Backend::kOci, kGvisor, "A10_OnlyHarmlessDevicesExist", "find /dev/net/tun",
               kOwnDevices},
    Difference{Backend::kOci, kGvisor, "A11_KernelHelpersCannotBeSet",
               "open /proc/sys/kernel/yama/ptrace_scope", kOwnSwitches},
    Difference{Backend::kOci, kGvisor, "A11_KernelHelpersCannotBeSet",
               "write /proc/sys/kernel/yama/ptrace_scope", kOwnSwitches},
    Difference{Backend::kOci, kGvisor, "A13_KernelFilesAreEmpty", "not so: /sys/", kOwnSys},
    Difference{Backend::kOci, kGvisor, "G03_PipeBuffersEnd", "not so: refused", kKernelsMemory},
    Difference{Backend::kOci, kGvisor, "G03_SocketBuffersEnd", "not so: refused", kKernelsMemory},
    Difference{Backend::kOci, kGvisor, "G20_MemoryCannotBePinned", "not so: no huge page",
               kOwnPages},
    Difference{Backend::kOci, kGvisor, "G20_MemoryCannotBePinned", "SHM_HUGETLB", kOwnPages},
    Difference{Backend::kOci, kGvisor, "R280_ProcessorTimeEnds", "not so: used", kOwnClock},
    Difference{Backend::kOci, kGvisor, "G07_CountedThingsEnd", "not so: POSIX timers end", kTimers},
    Difference{Backend::kOci, kGvisor, "E01_NoCapabilityIsHeld", "not so: five sets", kNoAmbient},
    Difference{Backend::kOci, kGvisor, "E01_NoCapabilityIsHeld", "not so: capability 38",
               kNoAmbient},
    Difference{Backend::kOci, kGvisor, "E01_NoCapabilityIsHeld", "not so: capability 39",
               kNoAmbient},
    Difference{Backend::kOci, kGvisor, "E01_NoCapabilityIsHeld", "not so: capability 40",
               kNoAmbient},
    Difference{Backend::kOci, kGvisor, "E02_NobodyBecomesRoot", "not so: the file system's user",
               kNoFileUser},
    Difference{Backend::kOci, kGvisor, "E05_NoNamespaceCanBeMadeByQuota",
               "not so: no user namespace is allowed", kNoQuotas},
    Difference{Backend::kOci, kGvisor, "E18_NoexecPlacesExecuteNothing",
               "not so: /dev/shm/program cannot be mapped", kMapsAnything},
    Difference{Backend::kOci, kGvisor, "F02_OtherAbisAreKilled", "int 0x80", kNo32Bit},
};

}  // namespace

std::span<const Difference> differences() { return kDifferences; }

std::string_view not_promised(const policy::Spec& spec, std::string_view probe,
                              std::string_view attempt) {
  const bool gvisor = spec.runtime.starts_with(kGvisor);
  const auto known =
      std::find_if(kDifferences.begin(), kDifferences.end(), [&](const Difference& one) {
        const bool of_it =
            gvisor ? one.runtime == kGvisor : one.runtime.empty() && one.backend == spec.backend;
        return of_it && one.probe == probe && attempt.starts_with(one.attempt);
      });
  return known == kDifferences.end() ? std::string_view() : known->reason;
}

}  // namespace carrel::verify
