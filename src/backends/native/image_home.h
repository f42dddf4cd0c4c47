#pragma once

#include <vector>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "policy/spec.h"

namespace carrel::native {

// What an imported image has in its user's home, which is the lower layer of HOME: the sandbox's
// user owns it there, and what he writes is in memory and gone with the sandbox.

// Whether a sandbox of this kind has it. Other walls are built by programs that cannot lay anything
// over something read-only, and before Linux 5.19 no overlay takes layers whose owners are mapped.
bool shows_image_home(const policy::Spec& spec);

// Puts the image's home first among the trees, if it has one and nothing else is put there. The
// image is a stranger's: its home is what its passwd says, if that is a directory of the image's
// without a link on the way.
Status add_image_home(const policy::Spec& spec, std::vector<GivenTree>& trees);

bool is_image_home(const GivenTree& tree);

// The place in the image that it was: "/root".
const std::string& place_of(const GivenTree& image_home);

}  // namespace carrel::native
