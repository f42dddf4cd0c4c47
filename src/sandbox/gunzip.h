#pragma once

#include "sandbox/files.h"

namespace carrel::sandbox {

// The bytes of `source`, taken out of gzip if they begin like one. Memory is bounded; how much
// comes out is not, so whoever writes it needs a limit. `source` is borrowed.
Files::Source gunzip_if_needed(const Files::Source& source);

}  // namespace carrel::sandbox
