#include "guest/image.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstddef>
#include <mutex>
#include <string_view>

#include "base/files.h"

extern "C" {
extern const char carrel_guest_begin[];
extern const char carrel_guest_end[];
}

namespace carrel::guest {

namespace {
constexpr unsigned kMfdExec = 0x10;  // newer than Debian 12's headers
constexpr int kSealExec = 0x20;

struct Image {
  UniqueFd file;
  bool for_all = false;  // nothing about it can be changed by whoever holds it
};

Result<Image> make_image() {
  int fd = ::memfd_create("carrel-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING | kMfdExec);
  if (fd < 0 && errno == EINVAL) {  // a kernel before 6.3
    fd = ::memfd_create("carrel-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (fd < 0) {
    return system_error("make a memory file for the guest (memfd_create)");
  }
  Image image{UniqueFd(fd)};
  std::string_view program(carrel_guest_begin,
                           static_cast<std::size_t>(carrel_guest_end - carrel_guest_begin));
  CARREL_TRY(write_all(image.file.get(), program));
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  image.for_all = ::fcntl(image.file.get(), F_ADD_SEALS, kSeals | kSealExec) == 0;
  if (!image.for_all && ::fcntl(image.file.get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error("seal the guest's memory file");
  }
  return image;
}

}  // namespace

Result<UniqueFd> open_image() {
  static std::mutex mutex;
  static UniqueFd shared;
  const std::lock_guard lock(mutex);
  if (!shared.valid()) {
    CARREL_ASSIGN(Image image, make_image());
    if (!image.for_all) {
      return std::move(image.file);
    }
    shared = std::move(image.file);
  }
  UniqueFd copy(::fcntl(shared.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return system_error("duplicate the guest's memory file");
  }
  return copy;
}

}  // namespace carrel::guest
