#pragma once

#include <cstdint>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::native {

// The overlay of a tree, as a mount that is nowhere. It is made by a process of its own in
// namespaces of its own, which then ends. As root the owner's files in all its directories are
// those of `id`.
Result<UniqueFd> make_overlay(const GivenTree& tree, std::uint32_t id);

}  // namespace carrel::native
