#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/sha256.h"

namespace carrel {

// Makes an empty file have the contents of another without copying them: false where the file
// system cannot, and nothing was done.
bool share_contents(int from, int to);

// Copies the first `size` bytes of a file into an empty one, with their holes, and feeds them to
// `hash` unless it is null. If `to` is negative they are only read. A file that has fewer is an
// error: it shrank while it was read.
Status copy_contents(int from, int to, std::uint64_t size, Sha256* hash, const std::string& path);

}  // namespace carrel
