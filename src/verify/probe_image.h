#pragma once

#include <string_view>

namespace carrel::verify {

// The program that attacks from inside (verify/probes), as bytes. It is only ever executed in a
// sandbox, and refuses the host's own mount namespace.
std::string_view probe_program();

}  // namespace carrel::verify
