#include "backends/microvm/qemu.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/microvm/hall.h"
#include "base/files.h"
#include "guest/machine.h"
#include "sandbox/builder.h"

namespace carrel::microvm {

namespace {

constexpr char kPath[] = "/usr/bin/qemu-system-x86_64";

// "QEMU emulator version 7.2.22 (Debian …)" becomes "7.2.22".
std::string version_in(const std::string& text) {
  constexpr std::string_view kWord = "version ";
  const std::size_t at = text.find(kWord);
  const std::string rest = at == std::string::npos ? "" : text.substr(at + kWord.size());
  return rest.substr(0, rest.find(' '));
}

// CRITICAL: no monitor, no display, no network, nothing that is there by default; no new process,
// no new right, no other id.
std::vector<std::string> closed(const Vmm& vmm) {
  return {vmm.path,
          "-nodefaults",
          "-no-user-config",
          "-monitor",
          "none",
          "-display",
          "none",
          "-serial",
          "none",
          "-parallel",
          "none",
          "-no-reboot",
          "-sandbox",
          "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"};
}

// Of one that boots, and which words its kernel gets.
void add_kernel(std::vector<std::string>& words, const std::string& command_line) {
  words.insert(words.end(), {"-kernel", kKernelPlace, "-append", command_line});
}

// A machine without buses and timers of old needs KVM's clock. Emulated, it has those of a PC.
void add_machine(std::vector<std::string>& words, Accelerator accelerator) {
  const bool kvm = accelerator == Accelerator::kKvm;
  words.insert(
      words.end(),
      {"-machine", kvm ? "microvm,acpi=on" : "q35,usb=off,sata=off,vmport=off,smbus=off", "-accel",
       kvm ? "kvm" : "tcg,thread=multi,tb-size=64", "-cpu", kvm ? "host" : "max"});
}

std::vector<std::string> qemu_arguments(const Vmm& vmm, const MachineTerms& terms) {
  std::vector<std::string> words = closed(vmm);
  add_machine(words, terms.accelerator);
  const bool kvm = terms.accelerator == Accelerator::kKvm;
  const std::string bus = kvm ? "-device" : "-pci";
  constexpr std::uint64_t kQemuMib = 1U << 20;
  const std::string memory = std::to_string((terms.memory_bytes + kQemuMib - 1) / kQemuMib) + "M";
  // What comes after "--" is for the machine's first process. An emulated kernel that checked its
  // timer would panic on a busy host: the ticks come from another thread than the one that counts.
  const std::string kernel_words = std::string("quiet panic=-1 reboot=t ") +
                                   (kvm ? "" : "mitigations=off tsc=unstable no_timer_check ") +
                                   "-- " + guest::kMachineWord;
  if (terms.start == MachineStart::kRestores) {
    words.insert(words.end(), {"-incoming", "fd:" + std::to_string(kSnapshotOfVmm)});
  } else {
    add_kernel(words, kernel_words);
    words.insert(words.end(), {"-initrd", kFirstFilesPlace});
  }
  if (terms.start == MachineStart::kSaves) {
    // CRITICAL: never of a machine that anything of a sandbox's runs in.
    words.insert(words.end(), {"-chardev", "socket,id=monitor,fd=" + std::to_string(kSnapshotOfVmm),
                               "-mon", "chardev=monitor,mode=control"});
  }
  const std::vector<std::string> more = {
      "-smp", std::to_string(terms.cpus), "-m", memory,
      // The serial line.
      "-device", "virtio-serial" + bus, "-chardev",
      "socket,id=line,fd=" + std::to_string(kLineOfVmm), "-device",
      "virtserialport,chardev=line,name=carrel",
      // The root.
      "-blockdev",
      "driver=nbd,node-name=root,read-only=on,server.type=fd,server.str=" +
          std::to_string(kBlocksOfVmm) + ",export=root",
      "-device",
      "virtio-blk" + bus + ",drive=root,logical_block_size=4096,physical_block_size=4096"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> probe_arguments(const Vmm& vmm) {
  std::vector<std::string> words = closed(vmm);
  add_machine(words, Accelerator::kKvm);
  add_kernel(words, "quiet panic=-1 reboot=t");
  words.insert(words.end(), {"-m", "192M"});
  return words;
}

// Paths of the host that QEMU reads, with the accelerator's device.
std::vector<std::string> needed_by(const Vmm& vmm, Accelerator accelerator) {
  std::vector<std::string> paths = {vmm.path,
                                    "/lib",
                                    "/lib64",
                                    "/usr/lib/x86_64-linux-gnu",
                                    "/usr/lib64",
                                    "/usr/share/qemu",
                                    "/usr/share/seabios",
                                    "/etc/ld.so.cache"};
  if (accelerator == Accelerator::kKvm) {
    paths.emplace_back("/dev/kvm");
  }
  return paths;
}

class Qemu final : public Vmm {
 public:
  [[nodiscard]] VmmStart machine(const MachineTerms& terms) const override {
    return {qemu_arguments(*this, terms), needed_by(*this, terms.accelerator), {}};
  }
  [[nodiscard]] VmmStart probe() const override {
    return {probe_arguments(*this), needed_by(*this, Accelerator::kKvm), {}};
  }
  [[nodiscard]] Result<UniqueFd> open_kernel(const BootKernel& kernel) const override {
    return open_at(AT_FDCWD, kernel.path, O_RDONLY);
  }
};

}  // namespace

Result<std::unique_ptr<Vmm>> find_qemu() {
  if (::access(kPath, X_OK) != 0) {
    return Error{Code::kUnsupported, 0, std::string("there is no ") + kPath,
                 "install the package 'qemu-system-x86'"};
  }
  CARREL_ASSIGN(const std::string text, sandbox::ask_version(kPath));
  const std::string version = version_in(text);
  if (version.empty()) {
    return Error{Code::kUnsupported,
                 0,
                 std::string(kPath) + " does not tell its version: '" + text + "'",
                 {}};
  }
  auto qemu = std::make_unique<Qemu>();
  qemu->name = "qemu";
  qemu->path = kPath;
  qemu->version = "QEMU " + version;
  qemu->saving = Vmm::Saving::kPossible;
  return std::unique_ptr<Vmm>(std::move(qemu));
}

}  // namespace carrel::microvm
