#pragma once

#include <optional>

#include "backends/microvm/porter.h"
#include "base/result.h"
#include "base/unique_fd.h"

// The line to a machine whose VMM has sockets in the place of a serial port.
namespace carrel::microvm {

// Where the machine's first process comes out that connects to its host: see kLinePlace.
Result<UniqueFd> listen_for_machine();

// Waits until it has, as long as the terms allow, and takes that off what they allow. CRITICAL: the
// line is the first connection, and there is no other, as nobody listens any more. Nothing: there
// is a line in the terms; else why there is none.
std::optional<PorterEnd> await_line(PorterTerms& terms, UniqueFd listener);

}  // namespace carrel::microvm
