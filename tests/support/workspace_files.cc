#include "support/workspace_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/files.h"
#include "kernel/image_mount.h"
#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

namespace fs = std::filesystem;

WorkspaceFiles::WorkspaceFiles(As as, const std::string& workspace)
    : path_(place().home(as) + "/workspaces/" + workspace) {
  const UniqueFd place(::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place.valid() || ::faccessat(place.get(), "disk", F_OK, 0) != 0) {
    return;
  }
  auto mount = kernel::mount_image(place.get(), "disk");
  if (!mount.ok()) {
    ADD_FAILURE() << mount.error().to_string();
    return;
  }
  top_.reset(::openat(mount->get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(top_.get());
}

std::string loop_devices_of(As as) {
  std::string found;
  std::error_code failed;
  for (const auto& device : fs::directory_iterator("/sys/block", failed)) {
    const auto file = read_text(device.path() / "loop/backing_file");
    if (file.has_value() && file->starts_with(place().home(as) + "/")) {
      found += device.path().filename().string() + " " + *file;
    }
  }
  return found;
}

}  // namespace carrel::test
