#include "backends/native/doctor_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "storage/workspaces/disk_image.h"

namespace carrel::native {

namespace {

constexpr std::uint64_t kTrialBytes = 1U << 20;

Result<UniqueFd> make_directory(int in, const std::string& name) {
  if (::mkdirat(in, name.c_str(), 0700) != 0) {
    return system_error("make '" + name + "'");
  }
  return open_at(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

}  // namespace

DiskFacts try_disk(const storage::Home& home) {
  DiskFacts facts;
  if (::geteuid() != 0) {
    return facts;
  }
  const std::string name = "doctor." + storage::random_hex(8);
  auto directory = make_directory(home.directory(), name);
  auto made = directory.ok() ? storage::make_disk(directory.value().get(), kTrialBytes)
                             : Result<UniqueFd>(directory.error());
  facts.tried = true;
  facts.held = made.ok();
  if (!made.ok()) {
    facts.hint = made.error().hint;
    made.error().hint.clear();
    facts.why_missing = made.error().to_string();
  }
  (void)remove_tree_at(home.directory(), name);
  return facts;
}

Check check_disk(const DoctorFacts& facts) {
  constexpr char kName[] = "disk";
  const DiskFacts& disk = facts.disk;
  if (facts.around.uid != 0) {
    return Check{
        kName, CheckStatus::kMissing,
        "only root can give a workspace a file system of its own; a watchdog stands in and "
        "ends who makes it too large",
        "use workspaces as root, or sandboxes without --workspace, whose files are in "
        "memory"};
  }
  if (!disk.tried) {
    return Check{
        kName, CheckStatus::kMissing, "not tried, because something else is missing", {}, false};
  }
  if (disk.held) {
    return Check{kName,
                 CheckStatus::kOk,
                 "held: a workspace with a size has a file system of its own (loop)",
                 {}};
  }
  return Check{
      kName, CheckStatus::kMissing, disk.why_missing + "; a watchdog stands in",
      disk.hint.empty() ? "make that possible, or set CARREL_HOME to another disk" : disk.hint};
}

}  // namespace carrel::native
