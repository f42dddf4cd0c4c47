#include "backends/microvm/kvm.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "backends/microvm/hall.h"
#include "base/files.h"
#include "kernel/program.h"
#include "sandbox/builder.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::microvm {

namespace {

constexpr char kKvmDevice[] = "/dev/kvm";
constexpr char kProbeMs[] = "10000";
constexpr char kRemembered[] = "/kvm-";
constexpr std::uint32_t kNobody = 65534;

// Whether the id that a machine runs as may use the device: as root that is never root's own.
bool may_use(Acceleration& found) {
  struct stat info{};
  if (::stat(kKvmDevice, &info) != 0) {
    found.why_emulated = "there is no /dev/kvm";
    return false;
  }
  if (::geteuid() == 0) {
    constexpr mode_t kOthers = S_IROTH | S_IWOTH;
    constexpr mode_t kGroup = S_IRGRP | S_IWGRP;
    if ((info.st_mode & kOthers) == kOthers) {
      return true;
    }
    if ((info.st_mode & kGroup) == kGroup && info.st_gid != 0) {
      found.group = info.st_gid;
      return true;
    }
    found.why_emulated = "only root may use /dev/kvm, and a machine does not run as root";
    return false;
  }
  if (::access(kKvmDevice, R_OK | W_OK) != 0) {
    found.why_emulated = "you may not use /dev/kvm: join its group";
    return false;
  }
  return true;
}

// CRITICAL: with nothing of the host but a kernel, as every machine. Else `found` has what was
// said.
bool boots(const Vmm& vmm, const BootKernel& kernel, Acceleration& found) {
  HallRequest request;
  request.stage = "/tmp";
  VmmStart start = vmm.probe();
  request.vmm = std::move(start.arguments);
  request.needed = std::move(start.needed);
  request.settings = std::move(start.settings);
  request.files = vmm.supply == Supply::kFiles ? "files" : "";
  request.boot_ms = kProbeMs;
  request.probes = "probes";
  auto asked = sandbox::memory_file(encode_hall(request));
  auto nothing = sandbox::memory_file({});
  auto complaints = sandbox::memory_file({});
  auto image = vmm.open_kernel(kernel);
  if (!asked.ok() || !nothing.ok() || !complaints.ok() || !image.ok()) {
    found.said = image.ok() ? "" : image.error().message;
    return false;
  }
  kernel::ProgramRequest program;
  program.path = "/proc/self/exe";
  program.arguments = {"carrel", "hall"};
  const int none = nothing.value().get();
  program.descriptors = {asked.value().get(), none, none, image.value().get(), none};
  program.errors = complaints.value().get();
  if (::geteuid() == 0) {
    program.id = kNobody;
    program.further_group = found.group;
  }
  auto started = kernel::start_program(program);
  int status = 1;
  while (started.ok() && ::waitpid(started.value().pid, &status, 0) < 0 && errno == EINTR) {
  }
  constexpr std::size_t kMost = 300;
  found.said = sandbox::read_line(complaints.value().get()).substr(0, kMost);
  return started.ok() && status == 0;
}

Acceleration look(const Vmm& vmm, const BootKernel& kernel) {
  Acceleration found;
  const char* const named = std::getenv("CARREL_VM_ACCELERATOR");
  const std::string_view wish = named == nullptr ? "" : named;
  if (wish == "tcg") {
    found.why_emulated = "CARREL_VM_ACCELERATOR says so";
    return found;
  }
  if (!may_use(found)) {
    return found;
  }
  auto home = storage::Home::open();
  const std::string note = home.ok() ? home.value().path() + kRemembered + vmm.name : std::string();
  const std::string question = storage::boot_id() + " " + vmm.version + " " + kernel.release + " ";
  std::string known;
  if (auto text = read_file_at(AT_FDCWD, note); !note.empty() && text.ok()) {
    known = text.value();
  }
  bool works = wish == "kvm" || known == question + "works";
  if (const std::string hangs = question + "hangs "; !works && known.starts_with(hangs)) {
    found.said = known.substr(hangs.size());
  } else if (!works) {
    works = boots(vmm, kernel, found);
    (void)replace_file_at(AT_FDCWD, note, works ? question + "works" : hangs + found.said, 0600,
                          Lasting::kUnsynced);
  }
  if (works) {
    found.accelerator = Accelerator::kKvm;
  } else {
    found.why_emulated = "a kernel does not boot with KVM here";
  }
  return found;
}

}  // namespace

Acceleration find_acceleration(const Vmm& vmm, const BootKernel& kernel) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, Acceleration> known;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = known.try_emplace({vmm.version, kernel.path});
  if (is_new) {
    at->second = look(vmm, kernel);
  }
  return at->second;
}

}  // namespace carrel::microvm
