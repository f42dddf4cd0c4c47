#pragma once

#include "base/result.h"
#include "policy/spec.h"
#include "sandbox/guest_stream.h"

namespace carrel::native {

// Gives a new guest the programs that are to run as long as it does. They start when its maker lets
// go of it. The stream is the maker's.
Status send_services(sandbox::GuestStream& stream, const policy::Spec& spec);

}  // namespace carrel::native
