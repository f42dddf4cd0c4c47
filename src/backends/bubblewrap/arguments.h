#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::bubblewrap {

// The first descriptors of bubblewrap; those with the contents of files follow. It has both ends of
// the pipe for its information: when nobody else reads any more, it must not die of that, because
// its child would wait for it forever.
enum Descriptor : int {
  kControl = 3,
  kImage = 4,
  kFilter = 5,
  kInfo = 6,
  kInfoReader = 7,
  kArguments = 8,
  kData = 9,
};

struct Arguments {
  std::vector<std::string> words;
  std::vector<std::string> data;  // what comes as descriptor kData, kData + 1 and so on
};

// Which of the paths of a new proc there are.
using Exists = bool (*)(const std::string& path);

// The plan in bubblewrap's words. `sources` are the paths of the plan's trees. kUnsupported: a step
// that bubblewrap cannot take.
Result<Arguments> arguments_for(const sandbox::RoomRequest& request,
                                const std::vector<std::string>& sources, Exists exists);

}  // namespace carrel::bubblewrap
