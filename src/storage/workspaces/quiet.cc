#include "storage/workspaces/quiet.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <sstream>

#include "base/files.h"
#include "storage/box.h"
#include "storage/workspaces/disk_image.h"

namespace carrel::storage {

namespace {

constexpr char kNote[] = "quiet";
constexpr std::size_t kLargestStatus = 4096;
constexpr int kWrittenSectors =
    7;  // the column in a device's `stat`; that of requests counts syncs

std::string read_line(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path, kLargestStatus);
  if (!text.ok()) {
    return {};
  }
  return text.value().substr(0, text.value().find('\n'));
}

// What was written to a device since it began to stand for what it stands for now.
std::string writes_of(const std::string& device) {
  // CRITICAL: a device that does not count looks as if nothing were written to it.
  if (device.empty() || read_line(device + "/queue/iostats") != "1") {
    return {};
  }
  const std::string sequence = read_line(device + "/diskseq");
  std::istringstream counts(read_line(device + "/stat"));
  std::uint64_t sectors = 0;
  for (int column = 1; column <= kWrittenSectors; ++column) {
    counts >> sectors;
  }
  const std::string boot = boot_id();
  if (!counts || sequence.empty() || boot.empty()) {
    return {};
  }
  return boot + " " + sequence + " " + std::to_string(sectors);
}

std::string device_of(int tree) {
  struct stat info{};
  if (::fstat(tree, &info) != 0) {
    return {};
  }
  return "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" +
         std::to_string(minor(info.st_dev));
}

}  // namespace

Quiet::Quiet(int place, int tree)
    : place_(place),
      tree_(tree),
      device_(has_disk(place) ? device_of(tree) : std::string()),
      began_(writes_of(device_)) {}

bool Quiet::was(const std::string& snapshot) const {
  if (began_.empty()) {
    return false;
  }
  // Changes that wait are brought to the device only if there may be none.
  const auto noted = read_file_at(place_, kNote, kLargestStatus);
  return noted.ok() && noted.value() == snapshot + " " + began_ && still();
}

bool Quiet::still() const {
  return !began_.empty() && ::syncfs(tree_) == 0 && writes_of(device_) == began_;
}

void Quiet::note(const std::string& snapshot) const {
  (void)replace_file_at(place_, kNote, snapshot + " " + began_, 0600, Lasting::kUnsynced);
}

}  // namespace carrel::storage
