#include "manager/walls.h"

#include "backends/bubblewrap/bubblewrap.h"

namespace carrel::manager {

const sandbox::Walls* find_walls(policy::Backend backend) {
  static const bubblewrap::Bubblewrap kBubblewrap;
  switch (backend) {
    case policy::Backend::kBubblewrap:
      return &kBubblewrap;
    case policy::Backend::kNative:
      break;
  }
  return nullptr;
}

}  // namespace carrel::manager
