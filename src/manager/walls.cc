#include "manager/walls.h"

#include "backends/bubblewrap/bubblewrap.h"
#include "backends/oci/oci.h"

namespace carrel::manager {

const sandbox::Walls* find_walls(policy::Backend backend) {
  static const bubblewrap::Bubblewrap kBubblewrap;
  static const oci::Runtimes kRuntimes;
  switch (backend) {
    case policy::Backend::kOci:
      return &kRuntimes;
    case policy::Backend::kBubblewrap:
      return &kBubblewrap;
    case policy::Backend::kNative:
      break;
  }
  return nullptr;
}

}  // namespace carrel::manager
