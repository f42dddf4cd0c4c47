#include "attacks/probe_table.h"

#include <sys/syscall.h>

namespace carrel::test {
namespace {

World with_files(std::vector<std::pair<std::string, std::string>> files,
                 World::Proc proc = World::Proc::kOwn) {
  World world;
  world.files = std::move(files);
  world.proc = proc;
  return world;
}

World with_arguments(std::vector<std::string> arguments) {
  World world;
  world.arguments = std::move(arguments);
  return world;
}

World with_pretence(std::vector<long> calls) {
  World world;
  world.pretend = std::move(calls);
  return world;
}

World with_descriptor(int number) {
  World world;
  world.descriptors = {number};
  return world;
}

World with_devices() {
  World world;
  world.devices = World::Devices::kOfTheHost;
  return world;
}

World with_processes_of_the_host() {
  World world;
  world.proc = World::Proc::kOfTheHost;
  return world;
}

// Decoys of kernel files: what is written there stays there.
World with_decoys(std::vector<std::pair<std::string, std::string>> files) {
  return with_files(std::move(files), World::Proc::kNone);
}

ProbeCase plain(std::string name, World control = {}) {
  return {std::move(name), {}, {}, std::move(control)};
}

// Memory: the limit is far below what the probe takes.
ProbeCase memory(std::string name) {
  return {std::move(name),
          {"--memory", "64m", "--tmp", "48m", "--disk", "48m", "--timeout", "20"},
          {"160"},
          with_arguments({"160"})};
}

std::vector<ProbeCase> make_cases() {
  const std::vector<std::pair<std::string, std::string>> system_files = {
      {"/etc/passwd", "root:x:0:0::/:/bin/sh\n"}, {"/usr/bin/env", std::string(8192, 'e')}};
  return {
      plain("A01_NoCanaryIsFoundInTheTree", with_files({{"/root/CANARY-control", "x"}})),
      plain("A02_NoOtherRootIsReachableThroughProc", with_files({{"/root/CANARY-control", "x"}})),
      plain("A03_OnlyThreeDescriptorsAreOpen", with_descriptor(251)),
      plain("A05_SystemFilesCannotBeChanged", with_files(system_files)),
      plain("A07_MountsCannotBeUncoveredByANamespace"),
      plain("A09_DeviceNodesCannotBeMade"),
      plain("A10_OnlyHarmlessDevicesExist", with_devices()),
      plain("A11_KernelHelpersCannotBeSet",
            with_decoys({{"/proc/sys/kernel/core_pattern", "core\n"}})),
      plain("A13_KernelFilesAreEmpty"),
      {"A15_NoPathOfTheHostIsToldOrReachable",
       {},
       {},
       {.files = {{"/proc/self/mountinfo",
                   "36 35 0:9 /home/me/layers / rw - overlay none rw,upperdir=/home/me\n"}},
        .proc = World::Proc::kNone,
        .arguments = {"/usr", "/etc"}}},
      plain("A17_SystemFilesCannotBeHardLinked", with_files(system_files)),
      plain("A18_ThePageCacheCannotBeWrittenThrough", with_files(system_files)),
      plain("A19_NothingOfAnotherSandboxIsFound", with_arguments({"plant"})),
      plain("A21_TheFirstProcessIsClosed"),
      plain("D07_NothingOutsideIsReached", with_pretence({SYS_connect, SYS_sendto})),
      plain("E01_NoCapabilityIsHeld"),
      plain("E02_NobodyBecomesRoot"),
      plain("E04_NamespacesAreRefused"),
      plain("E05_NoNamespaceCanBeMadeByQuota"),
      plain("E06_OtherProcessesCannotBeTakenOver",
            with_pretence({SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev})),
      plain("E06_TheFirstProcessCannotBeDisturbed"),
      plain("E09_UnusualSocketsNeverReachTheKernel", with_pretence({SYS_socket})),
      plain("E10_KeyringsAreRefused", with_pretence({SYS_keyctl, SYS_add_key, SYS_request_key})),
      plain("E12_TerminalsCannotBeTypedInto", with_pretence({SYS_ioctl})),
      plain("E13_PersonalityAndSecurebitsAreRefused"),
      plain("E14_NoSocketOfTheFirstProcessAnswers", with_arguments({"plant"})),
      {"E14_ListenersOfTheHostAreUnreachable",
       {},
       {},
       {.pretend = {SYS_connect}, .arguments = {"abstract=x", "path=/x", "tcp=1"}}},
      plain("E16_OnlyOwnProcessesAreSeen", with_processes_of_the_host()),
      plain("E17_ClocksCannotBeSet",
            with_pretence({SYS_clock_settime, SYS_settimeofday, SYS_adjtimex, SYS_clock_adjtime})),
      plain("E18_NoexecPlacesExecuteNothing"),
      plain("F02_OtherAbisAreKilled"),
      plain("F03_NoUnreviewedCallSucceeds"),
      plain("F04_EveryCallerIsFiltered"),
      plain("F06_RingsAreAbsent", with_pretence({SYS_io_uring_setup})),
      plain("F07_DangerousCallsAreRefused"),
      plain("F08_SwappedArgumentsGainNothing", with_files(system_files)),
      {"G01_ForksEnd", {"--pids", "100"}, {}, {}},
      memory("G03_PrivateMemoryEnds"),
      memory("G03_SharedMemoryEnds"),
      memory("G03_MemoryFilesEnd"),
      memory("G03_DevShmEnds"),
      memory("G03_TmpEnds"),
      memory("G03_TheWorkspaceEnds"),
      memory("G03_SystemVMemoryEnds"),
      // The kernel itself ends pipes at about 80 MiB.
      {"G03_PipeBuffersEnd",
       {"--memory", "40m", "--tmp", "8m", "--timeout", "20"},
       {"70"},
       with_arguments({"70"})},
      memory("G03_SocketBuffersEnd"),
      plain("G07_CountedThingsEnd"),
      {"G13_TheTimeLimitEndsEverything", {"--timeout", "1"}, {"20"}, with_arguments({"1"})},
      plain("G15_NoControlGroupIsReachable", with_decoys({{"/sys/fs/cgroup/cgroup.procs", "1\n"}})),
      plain("G16_QueuedSignalsEnd"),
      plain("G20_MemoryCannotBePinned"),
      {"H01_NothingOutlivesItsSandbox",
       {},
       {"carrel-probe-left", "look"},
       with_arguments({"carrel-probe-left", "leave", "look"})},
      plain("K06_NoSecretOfTheHostIsSeen",
            with_decoys({{"/proc/1/environ", "CARREL_CANARY_TOKEN=x"}})),
      // On a busy host, what nothing protects gets its share only: the control must take more than
      // a fiftieth of one processor.
      {"R280_ProcessorTimeEnds", {"--cpus", "1"}, {"1000"}, with_arguments({"10"})},
  };
}

}  // namespace

std::span<const ProbeCase> probe_cases() {
  static const std::vector<ProbeCase> cases = make_cases();
  return cases;
}

}  // namespace carrel::test
