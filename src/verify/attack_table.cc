#include "verify/attack_table.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace carrel::verify {

namespace {

struct Row {
  Group group;
  std::string_view name;
  std::string_view title;
};

constexpr std::array kRows = {
    Row{Group::kFiles, "fs", "files outside"},
    Row{Group::kNetwork, "net", "the network"},
    Row{Group::kProcesses, "proc", "processes"},
    Row{Group::kResources, "res", "resources"},
    Row{Group::kLimits, "limits", "limits"},
    Row{Group::kPersistence, "persist", "what stays"},
    Row{Group::kPrivileges, "privileges", "privileges"},
    Row{Group::kSystemCalls, "syscalls", "system calls"},
    Row{Group::kSession, "session", "the shell's protocol"},
};

constexpr std::array<Group, kRows.size()> kGroups = [] {
  std::array<Group, kRows.size()> all{};
  std::transform(kRows.begin(), kRows.end(), all.begin(), [](const Row& row) { return row.group; });
  return all;
}();

constexpr std::array kAttacks = {
    Attack{"A01_NoCanaryIsFoundInTheTree", Group::kFiles, Manner::kProbe,
           "A01_NoCanaryIsFoundInTheTree", "find files that were planted on the host"},
    Attack{"A02_NoOtherRootIsReachableThroughProc", Group::kFiles, Manner::kProbe,
           "A02_NoOtherRootIsReachableThroughProc",
           "leave through the roots and folders of processes"},
    Attack{"A03_OnlyThreeDescriptorsAreOpen", Group::kFiles, Manner::kProbe,
           "A03_OnlyThreeDescriptorsAreOpen", "use descriptors that the host had open"},
    Attack{"A05_SystemFilesCannotBeChanged", Group::kFiles, Manner::kProbe,
           "A05_SystemFilesCannotBeChanged", "change the system's files, remount and unmount them"},
    Attack{"A07_MountsCannotBeUncoveredByANamespace", Group::kFiles, Manner::kProbe,
           "A07_MountsCannotBeUncoveredByANamespace",
           "uncover what is hidden with namespaces of its own"},
    Attack{"A09_DeviceNodesCannotBeMade", Group::kFiles, Manner::kProbe,
           "A09_DeviceNodesCannotBeMade", "make device nodes and open them"},
    Attack{"A10_OnlyHarmlessDevicesExist", Group::kFiles, Manner::kProbe,
           "A10_OnlyHarmlessDevicesExist", "find devices of the host"},
    Attack{"A11_KernelHelpersCannotBeSet", Group::kFiles, Manner::kProbe,
           "A11_KernelHelpersCannotBeSet", "have the kernel start a program on the host"},
    Attack{"A13_KernelFilesAreEmpty", Group::kFiles, Manner::kProbe, "A13_KernelFilesAreEmpty",
           "read what the kernel tells about the host"},
    Attack{"A15_NoPathOfTheHostIsToldOrReachable", Group::kFiles, Manner::kPaths,
           "A15_NoPathOfTheHostIsToldOrReachable", "learn paths of the host and follow them"},
    Attack{"A17_SystemFilesCannotBeHardLinked", Group::kFiles, Manner::kProbe,
           "A17_SystemFilesCannotBeHardLinked", "link system files to where they can be written"},
    Attack{"A18_ThePageCacheCannotBeWrittenThrough", Group::kFiles, Manner::kProbe,
           "A18_ThePageCacheCannotBeWrittenThrough", "change a read-only file in memory"},
    Attack{"D07_NothingOutsideIsReached", Group::kNetwork, Manner::kOutside,
           "D07_NothingOutsideIsReached", "reach the host and the world over a network"},
    Attack{"E14_ListenersOfTheHostAreUnreachable", Group::kNetwork, Manner::kListeners,
           "E14_ListenersOfTheHostAreUnreachable", "connect to sockets on which the host listens"},
    Attack{"E14_NoSocketOfTheFirstProcessAnswers", Group::kNetwork, Manner::kProbe,
           "E14_NoSocketOfTheFirstProcessAnswers", "connect to sockets of Carrel's own"},
    Attack{"E09_UnusualSocketsNeverReachTheKernel", Group::kNetwork, Manner::kProbe,
           "E09_UnusualSocketsNeverReachTheKernel", "open raw sockets and unusual families"},
    Attack{"G01_ForksEnd", Group::kProcesses, Manner::kForks, "G01_ForksEnd",
           "make processes without end"},
    Attack{"E16_OnlyOwnProcessesAreSeen", Group::kProcesses, Manner::kProbe,
           "E16_OnlyOwnProcessesAreSeen", "see and signal processes of the host"},
    Attack{"E06_OtherProcessesCannotBeTakenOver", Group::kProcesses, Manner::kProbe,
           "E06_OtherProcessesCannotBeTakenOver", "trace processes and write into their memory"},
    Attack{"E06_TheFirstProcessCannotBeDisturbed", Group::kProcesses, Manner::kProbe,
           "E06_TheFirstProcessCannotBeDisturbed", "stop, slow down or limit the first process"},
    Attack{"A21_TheFirstProcessIsClosed", Group::kProcesses, Manner::kProbe,
           "A21_TheFirstProcessIsClosed", "read what the first process has"},
    Attack{"G03_PrivateMemoryEnds", Group::kResources, Manner::kMemory, "G03_PrivateMemoryEnds",
           "take more memory than there is"},
    Attack{"G03_SharedMemoryEnds", Group::kResources, Manner::kMemory, "G03_SharedMemoryEnds",
           "take shared memory"},
    Attack{"G03_MemoryFilesEnd", Group::kResources, Manner::kMemory, "G03_MemoryFilesEnd",
           "take memory as memory files"},
    Attack{"G03_DevShmEnds", Group::kResources, Manner::kSize, "G03_DevShmEnds", "fill /dev/shm"},
    Attack{"G03_TmpEnds", Group::kResources, Manner::kSize, "G03_TmpEnds", "fill /tmp"},
    Attack{"G03_TheWorkspaceEnds", Group::kResources, Manner::kSize, "G03_TheWorkspaceEnds",
           "fill /workspace"},
    Attack{"G03_SystemVMemoryEnds", Group::kResources, Manner::kMemory, "G03_SystemVMemoryEnds",
           "take memory of System V"},
    Attack{"G03_PipeBuffersEnd", Group::kResources, Manner::kPipes, "G03_PipeBuffersEnd",
           "take memory as full pipes"},
    Attack{"G03_SocketBuffersEnd", Group::kResources, Manner::kMemory, "G03_SocketBuffersEnd",
           "take memory as full sockets"},
    Attack{"G20_MemoryCannotBePinned", Group::kResources, Manner::kProbe,
           "G20_MemoryCannotBePinned", "lock memory and take huge pages"},
    Attack{"R280_ProcessorTimeEnds", Group::kResources, Manner::kProcessor,
           "R280_ProcessorTimeEnds", "compute with more cores than were given"},
    Attack{"G13_TheTimeLimitEndsEverything", Group::kLimits, Manner::kTimeLimit,
           "G13_TheTimeLimitEndsEverything", "go on after the time limit, deaf to signals"},
    Attack{"G07_CountedThingsEnd", Group::kLimits, Manner::kProbe, "G07_CountedThingsEnd",
           "open files, timers and queues without end"},
    Attack{"G15_NoControlGroupIsReachable", Group::kLimits, Manner::kProbe,
           "G15_NoControlGroupIsReachable", "find and change its own control groups"},
    Attack{"G16_QueuedSignalsEnd", Group::kLimits, Manner::kProbe, "G16_QueuedSignalsEnd",
           "queue signals without end"},
    Attack{"H01_NothingOutlivesItsSandbox", Group::kPersistence, Manner::kDaemons,
           "H01_NothingOutlivesItsSandbox", "leave processes behind"},
    Attack{"H03_ANewSandboxFindsNothing", Group::kPersistence, Manner::kNewcomer,
           "A19_NothingOfAnotherSandboxIsFound",
           "leave files, memory and queues for the next sandbox"},
    Attack{"A19_NothingOfAnotherSandboxIsFound", Group::kPersistence, Manner::kNeighbour,
           "A19_NothingOfAnotherSandboxIsFound", "find what another sandbox has at the same time"},
    Attack{"K06_NoSecretOfTheHostIsSeen", Group::kPersistence, Manner::kProbe,
           "K06_NoSecretOfTheHostIsSeen", "read a variable of the host's program"},
    Attack{"E01_NoCapabilityIsHeld", Group::kPrivileges, Manner::kProbe, "E01_NoCapabilityIsHeld",
           "hold, raise and inherit capabilities"},
    Attack{"E02_NobodyBecomesRoot", Group::kPrivileges, Manner::kProbe, "E02_NobodyBecomesRoot",
           "become root by calls and by set-id programs"},
    Attack{"E04_NamespacesAreRefused", Group::kPrivileges, Manner::kProbe,
           "E04_NamespacesAreRefused", "make and enter namespaces"},
    Attack{"E05_NoNamespaceCanBeMadeByQuota", Group::kPrivileges, Manner::kProbe,
           "E05_NoNamespaceCanBeMadeByQuota", "raise the number of namespaces"},
    Attack{"E10_KeyringsAreRefused", Group::kPrivileges, Manner::kProbe, "E10_KeyringsAreRefused",
           "read and write keyrings"},
    Attack{"E12_TerminalsCannotBeTypedInto", Group::kPrivileges, Manner::kProbe,
           "E12_TerminalsCannotBeTypedInto", "type into terminals"},
    Attack{"E13_PersonalityAndSecurebitsAreRefused", Group::kPrivileges, Manner::kProbe,
           "E13_PersonalityAndSecurebitsAreRefused", "change its personality and secure bits"},
    Attack{"E17_ClocksCannotBeSet", Group::kPrivileges, Manner::kProbe, "E17_ClocksCannotBeSet",
           "set the clocks"},
    Attack{"E18_NoexecPlacesExecuteNothing", Group::kPrivileges, Manner::kProbe,
           "E18_NoexecPlacesExecuteNothing", "execute where nothing may be"},
    Attack{"F02_OtherAbisAreKilled", Group::kSystemCalls, Manner::kProbe, "F02_OtherAbisAreKilled",
           "call the kernel by its other tables"},
    Attack{"F03_NoUnreviewedCallSucceeds", Group::kSystemCalls, Manner::kProbe,
           "F03_NoUnreviewedCallSucceeds", "try every system call that nobody reviewed"},
    Attack{"F04_EveryCallerIsFiltered", Group::kSystemCalls, Manner::kProbe,
           "F04_EveryCallerIsFiltered", "call from threads, handlers and vfork children"},
    Attack{"F06_RingsAreAbsent", Group::kSystemCalls, Manner::kProbe, "F06_RingsAreAbsent",
           "make an io_uring"},
    Attack{"F07_DangerousCallsAreRefused", Group::kSystemCalls, Manner::kProbe,
           "F07_DangerousCallsAreRefused", "load programs and modules into the kernel"},
    Attack{"F08_SwappedArgumentsGainNothing", Group::kSystemCalls, Manner::kProbe,
           "F08_SwappedArgumentsGainNothing", "swap arguments below the kernel"},
    Attack{"I01_ACommandCannotForgeItsStatus", Group::kSession, Manner::kSession, "",
           "forge the status of a command"},
    Attack{"I03_ClosedDescriptorsStillGiveTheStatus", Group::kSession, Manner::kSession, "",
           "close what the status is told through"},
    Attack{"I04_ABackgroundJobDoesNotHoldTheCall", Group::kSession, Manner::kSession, "",
           "hold a call with a job in the background"},
    Attack{"I05_ALateJobDoesNotWriteIntoTheNextCommand", Group::kSession, Manner::kSession, "",
           "write into the output of the next command"},
    Attack{"I08_AChangedShellIsNoObstacle", Group::kSession, Manner::kSession, "",
           "change the shell's own words"},
    Attack{"I13_FakeRecordsAreIgnored", Group::kSession, Manner::kSession, "",
           "write records of the protocol to every descriptor"},
};

}  // namespace

std::span<const Group> groups() { return kGroups; }

std::string_view name_of(Group group) { return kRows.at(static_cast<std::size_t>(group)).name; }

std::string_view title_of(Group group) { return kRows.at(static_cast<std::size_t>(group)).title; }

std::optional<Group> group_named(std::string_view name) {
  const auto found =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.name == name; });
  return found == kRows.end() ? std::nullopt : std::optional(found->group);
}

std::span<const Attack> attacks() { return kAttacks; }

std::optional<Selection> selection_named(std::string_view word) {
  if (const std::optional<Group> group = group_named(word); group.has_value()) {
    return Selection{group, {}};
  }
  const auto found = std::find_if(kAttacks.begin(), kAttacks.end(),
                                  [&](const Attack& one) { return one.name == word; });
  return found == kAttacks.end() ? std::nullopt
                                 : std::optional(Selection{std::nullopt, found->name});
}

}  // namespace carrel::verify
