#include "verify/probe_image.h"

#include <cstddef>

extern "C" {
extern const char carrel_probe_begin[];
extern const char carrel_probe_end[];
}

namespace carrel::verify {

std::string_view probe_program() {
  return {carrel_probe_begin, static_cast<std::size_t>(carrel_probe_end - carrel_probe_begin)};
}

}  // namespace carrel::verify
