// A hostile engine, or a hostile container behind one: any bytes on the connection to its standard
// output. However they come, the same is left of them, never more than came, and what was refused
// stays so. What is left may begin with a greeting, which is read strictly.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "backends/docker/attach_frames.h"
#include "protocol/greeting.h"

namespace {

using carrel::docker::AttachFrames;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

struct Left {
  std::string bytes;
  bool refused = false;
  bool between = false;
};

Left strip(const std::string& all, std::size_t piece) {
  AttachFrames frames;
  Left left;
  for (std::size_t at = 0; at < all.size(); at += piece) {
    std::string part = all.substr(at, piece);
    const std::size_t came = part.size();
    const std::optional<std::size_t> kept = frames.strip(part);
    require(!left.refused || !kept.has_value());
    left.refused = !kept.has_value();
    require(!kept.has_value() || *kept <= came);
    left.bytes.append(part, 0, kept.value_or(0));
  }
  left.between = frames.between();
  return left;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) {
    return 0;
  }
  const std::size_t piece = 1U + data[0] % 64U;
  const std::string all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Left whole = strip(all, all.size() + 1);
  const Left pieces = strip(all, piece);
  require(whole.refused == pieces.refused && whole.between == pieces.between);
  require(!(whole.refused && whole.between));
  // What came before a frame that is refused is handed on where it came by itself.
  require(whole.refused || whole.bytes == pieces.bytes);
  require(pieces.bytes.size() <= all.size());
  if (pieces.bytes.size() >= carrel::protocol::kGreetingSize) {
    carrel::protocol::Greeting greeting;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(pieces.bytes.data());
    if (carrel::protocol::parse_greeting(bytes, greeting)) {
      unsigned char again[carrel::protocol::kGreetingSize];
      carrel::protocol::write_greeting(greeting, again);
      require(std::string(pieces.bytes, 0, sizeof again) ==
              std::string(reinterpret_cast<const char*>(again), sizeof again));
    }
  }
  return 0;
}
