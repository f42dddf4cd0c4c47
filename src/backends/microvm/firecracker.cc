#include "backends/microvm/firecracker.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "backends/microvm/drive.h"
#include "backends/microvm/hall.h"
#include "backends/microvm/kernel_image.h"
#include "base/files.h"
#include "guest/machine.h"
#include "policy/known_flaws.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPaths[] = {"/usr/bin/firecracker", "/usr/local/bin/firecracker"};
constexpr policy::Version kOldest{{1, 8, 0}};
constexpr char kUnverified[] = "unverified: no machine was at hand where it boots";
constexpr std::uint64_t kMib = 1U << 20;
constexpr std::uint64_t kProbeMemory = 192 * kMib;

// "Firecracker v1.16.1", and what it logs, becomes "1.16.1".
std::string version_in(const std::string& text) {
  constexpr std::string_view kWords = "Firecracker v";
  return text.starts_with(kWords)
             ? text.substr(kWords.size(), text.find(' ', kWords.size()) - kWords.size())
             : std::string();
}

// A machine that has nothing but a kernel. It is reset by its keyboard's controller, which is the
// only way by which Firecracker ends with success.
Json bare(const MachineTerms& terms) {
  constexpr std::uint32_t kMostCpus = 32;
  Json settings;
  settings["boot-source"] = {{"kernel_image_path", kKernelPlace},
                             {"boot_args", "quiet panic=-1 reboot=k 8250.nr_uarts=0"}};
  settings["drives"] = Json::array();
  settings["machine-config"] = {{"vcpu_count", std::clamp<std::uint32_t>(terms.cpus, 1, kMostCpus)},
                                {"mem_size_mib", (terms.memory_bytes + kMib - 1) / kMib},
                                {"smt", false},
                                {"track_dirty_pages", false}};
  return settings;
}

class Firecracker final : public Vmm {
 public:
  [[nodiscard]] VmmStart machine(const MachineTerms& terms) const override {
    return start(firecracker_settings(terms));
  }
  [[nodiscard]] VmmStart probe() const override {
    return start(bare({Accelerator::kKvm, kProbeMemory, 1}).dump());
  }
  [[nodiscard]] Status check_host() const override { return check_drives(); }
  // It loads no compressed kernel.
  [[nodiscard]] Result<UniqueFd> open_kernel(const BootKernel& kernel) const override {
    CARREL_ASSIGN(const std::string image, read_file_at(AT_FDCWD, kernel.path, kLargestKernel));
    if (is_kernel_program(image)) {
      return open_at(AT_FDCWD, kernel.path, O_RDONLY);
    }
    CARREL_ASSIGN(const std::string program, unpack_kernel(image));
    return sandbox::memory_file(program);
  }

 private:
  // CRITICAL: no socket at which it can be told anything. Its own filters of system calls are on
  // unless it is told otherwise.
  [[nodiscard]] VmmStart start(std::string settings) const {
    return {{path, "--no-api", "--config-file", kSettingsPlace},
            {path, "/lib", "/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/etc/ld.so.cache",
             "/dev/kvm"},
            std::move(settings)};
  }
};

}  // namespace

std::string firecracker_settings(const MachineTerms& terms) {
  Json settings = bare(terms);
  // What comes after "--" is for the machine's first process.
  Json& boot = settings["boot-source"];
  boot["boot_args"] =
      boot["boot_args"].get<std::string>() + " -- " + guest::kMachineWord + " " + guest::kVsockWord;
  boot["initrd_path"] = kFirstFilesPlace;
  // No "root device": it would be named to the kernel, after what is for the first process.
  settings["drives"].push_back({{"drive_id", "root"},
                                {"path_on_host", kDrivePlace},
                                {"is_root_device", false},
                                {"is_read_only", true},
                                {"cache_type", "Unsafe"},
                                {"io_engine", "Sync"}});
  settings["vsock"] = {{"guest_cid", guest::kMachineCid}, {"uds_path", kLinePlace}};
  return settings.dump();
}

Result<std::unique_ptr<Vmm>> find_firecracker() {
  const auto* const found =
      std::find_if(std::begin(kPaths), std::end(kPaths),
                   [](const char* path) { return ::access(path, X_OK) == 0; });
  if (found == std::end(kPaths)) {
    return unsupported(
        std::string("there is no Firecracker: neither ") + kPaths[0] + " nor " + kPaths[1],
        "put its program of version 1.8 or later there, or leave out --runtime");
  }
  CARREL_ASSIGN(const std::string text, sandbox::ask_version(*found));
  const std::string told = version_in(text);
  const auto version = policy::parse_version(told);
  if (!version.has_value()) {
    return unsupported(std::string(*found) + " does not tell its version: '" + text + "'", {});
  }
  if (*version < kOldest) {
    return unsupported("Firecracker " + told + " is too old: its machines have no ACPI",
                       "install version 1.8 or later, or leave out --runtime");
  }
  auto vmm = std::make_unique<Firecracker>();
  vmm->name = "firecracker";
  vmm->path = *found;
  vmm->version = "Firecracker " + told;
  vmm->caveat = kUnverified;
  vmm->supply = Supply::kFiles;
  vmm->emulation = Vmm::Emulation::kImpossible;
  return std::unique_ptr<Vmm>(std::move(vmm));
}

}  // namespace carrel::microvm
