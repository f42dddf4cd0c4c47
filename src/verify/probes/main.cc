#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "verify/probes/descriptors.h"
#include "verify/probes/probe.h"

// probe --list
// probe --stay
// probe HOST_MOUNT_NAMESPACE NAME [ARGUMENT...]
//
// HOST_MOUNT_NAMESPACE is the inode of the host's own mount namespace. CRITICAL: in that namespace
// nothing is tried, because some probes unmount and remount what they find.
namespace {

using carrel::probe::Probe;

constexpr int kRefused = 3;
constexpr int kUnknown = 2;

std::array<std::span<const Probe>, 10> subjects() {
  using namespace carrel::probe;
  return {file_probes(),    proc_probes(),  process_probes(), privilege_probes(), surface_probes(),
          sharing_probes(), limit_probes(), memory_probes(),  network_probes(),   lasting_probes()};
}

// Whether this is provably not the host. A namespace that cannot be read counts as the host's,
// unless there is no proc at all, which the host always has, or the kernel has namespaces of
// networks and none of mounts, as gVisor's and never Linux.
bool away_from_host(const char* host_namespace) {
  char* end = nullptr;
  const unsigned long long host = ::strtoull(host_namespace, &end, 10);
  if (host == 0 || *end != '\0') {
    return false;
  }
  struct stat own{};
  if (::stat("/proc/self/ns/mnt", &own) != 0) {
    return (errno == ENOENT && ::stat("/proc/self/ns/net", &own) == 0) ||
           ::access("/proc/self/stat", F_OK) != 0;
  }
  return own.st_ino != host;
}

}  // namespace

int main(int argc, char** argv) {
  carrel::probe::note_descriptors();
  if (argc == 2 && ::strcmp(argv[1], "--list") == 0) {
    for (const auto& subject : subjects()) {
      for (const Probe& probe : subject) {
        ::puts(probe.name);
      }
    }
    return 0;
  }
  if (argc == 2 && ::strcmp(argv[1], carrel::probe::kStay) == 0) {
    carrel::probe::stay();
  }
  if (argc < 3) {
    ::fputs("usage: probe HOST_MOUNT_NAMESPACE NAME [ARGUMENT...]\n", stderr);
    return kUnknown;
  }
  if (!away_from_host(argv[1])) {
    ::fputs("probe: this is the host's own mount namespace, or could be: refused\n", stderr);
    return kRefused;
  }
  ::signal(SIGPIPE, SIG_IGN);
  for (const auto& subject : subjects()) {
    for (const Probe& probe : subject) {
      if (::strcmp(probe.name, argv[2]) == 0) {
        carrel::probe::Report report;
        probe.run(report, carrel::probe::Arguments(argv + 3, static_cast<std::size_t>(argc - 3)));
        const std::string line = report.line(probe.name);
        return ::write(1, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0 : 1;
      }
    }
  }
  ::fputs("probe: there is no such probe\n", stderr);
  return kUnknown;
}
