#include "guest/image.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstddef>
#include <string_view>

#include "base/files.h"

extern "C" {
extern const char carrel_guest_begin[];
extern const char carrel_guest_end[];
}

namespace carrel::guest {

namespace {
constexpr unsigned kMfdExec = 0x10;       // newer than Debian 12's headers
constexpr int kSealExec = 0x20;
}  // namespace

Result<UniqueFd> open_image() {
  int fd = ::memfd_create("carrel-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING | kMfdExec);
  if (fd < 0 && errno == EINVAL) {  // a kernel before 6.3
    fd = ::memfd_create("carrel-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (fd < 0) {
    return system_error("make a memory file for the guest (memfd_create)");
  }
  UniqueFd image(fd);
  std::string_view program(carrel_guest_begin,
                           static_cast<std::size_t>(carrel_guest_end - carrel_guest_begin));
  CARREL_TRY(write_all(image.get(), program));
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fcntl(image.get(), F_ADD_SEALS, kSeals | kSealExec) != 0 &&
      ::fcntl(image.get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error("seal the guest's memory file");
  }
  return image;
}

}  // namespace carrel::guest
