#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "backends/microvm/boot_files.h"
#include "backends/microvm/vmm.h"
#include "base/result.h"
#include "base/unique_fd.h"

// Machines that were saved while they waited for their first words, so that others begin there and
// need not boot. They are in CARREL_HOME/machines, a file for each shape: a machine's memory, with
// nothing of any sandbox in it. Whoever can write such a file owns the machines that begin with it,
// so it is believed only if it is the caller's own, a plain file, and nobody else's to touch.
namespace carrel::microvm {

// CARREL_VM_SNAPSHOTS: "off", "on", or what is usual: only for machines that are emulated.
bool uses_snapshots(Accelerator accelerator);

// What has to be alike in two machines, one of which goes on from where the other one was saved.
struct Shape {
  std::string vmm;  // its file
  std::string version;
  BootKernel kernel;
  MachineTerms terms;
  std::vector<std::string> arguments;  // with which the VMM boots it
  std::string first_files;             // their content
  std::optional<VmmStart> saved_by;    // nothing: it cannot be saved
  // As root: one that may use the accelerator's device. It makes no difference to the machine.
  std::optional<std::uint32_t> group;
};

// The machines that one installation has saved.
class Snapshots {
 public:
  static constexpr std::size_t kMost = 4;

  // Whether there can be any.
  static bool exist(const std::string& home);
  // Of that CARREL_HOME. kDenied: the folder is not the caller's alone.
  static Result<Snapshots> open(const std::string& home);

  // A name for each shape, as long as QEMU's file and the kernel's stay the same.
  static std::string name_of(const Shape& shape);
  // What tells later whether those files are still the same.
  static std::string about(const Shape& shape);

  // kNotFound: there is none. kDenied: there was one that is not the caller's alone; it is removed.
  [[nodiscard]] Result<UniqueFd> find(const std::string& name) const;
  void remove(const std::string& name) const;

  // Whether one of that name should be made now. kUnavailable: why not.
  [[nodiscard]] Status can_make(const std::string& name) const;
  // A file to write it to, as long as which is open nobody else makes it. kConflict: somebody does.
  [[nodiscard]] Result<UniqueFd> begin(const std::string& name) const;
  Status publish(const std::string& name, const UniqueFd& file, const std::string& about) const;
  // It did not work, for that reason: it is not tried again for a while.
  void give_up(const std::string& name, const std::string& reason) const;

  // Removes those of a kernel or a QEMU that changed, that nobody used for a week, the oldest ones
  // beyond kMost, and what was never finished.
  void sweep() const;

 private:
  explicit Snapshots(UniqueFd folder) : folder_(std::move(folder)) {}

  UniqueFd folder_;
};

// Has a machine of this shape made and saved, by a process of its own that nobody waits for, and
// which gives up when that takes twice as long as a machine may take to begin.
struct Saving {
  std::string home;
  int kernel_image = -1;
  int first_files = -1;
  std::chrono::milliseconds boot{};
};
Status begin_saving(const Saving& saving, const Shape& shape);
// All of it, as the whole life of that process; its exit status.
int run_maker();

}  // namespace carrel::microvm
