#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace carrel::test {

// The walls that this run of the tests is about: CARREL_TEST_BACKEND, in which "oci-runsc" is oci
// with the runtime runsc. Without it they are native, and nothing is named where a sandbox is made.
struct Walls {
  bool named = false;
  std::string backend = "native";
  std::string runtime;

  // Behind a kernel of its own that is gVisor's.
  [[nodiscard]] bool gvisor() const { return runtime == "runsc"; }
  // In a container of an engine's, which also holds its limits and removes it.
  [[nodiscard]] bool engine() const { return backend == "docker"; }
  [[nodiscard]] std::string isolation() const {
    return gvisor() ? "gvisor" : backend == "microvm" ? "vm" : "namespace";
  }
};

inline Walls walls() {
  Walls walls;
  if (const char* const name = std::getenv("CARREL_TEST_BACKEND"); name != nullptr) {
    const std::string_view text(name);
    const std::size_t dash = text.find('-');
    walls.named = true;
    walls.backend = text.substr(0, dash);
    walls.runtime = dash == std::string_view::npos ? "" : text.substr(dash + 1);
  }
  return walls;
}

}  // namespace carrel::test
