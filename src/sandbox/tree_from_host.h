#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "sandbox/files.h"

namespace carrel::sandbox {

// Told with each piece that was read or written: bytes and entries so far.
using Progress = std::function<void(std::uint64_t bytes, std::uint64_t entries)>;

// Tells everything below the host's directory `directory` (a descriptor, borrowed) as a tree: files
// with their modes, times and holes, directories, links as links. No link is followed. What cannot
// go into a sandbox, or cannot be read, is added to `left_out`.
Status feed_host_tree(int directory, TreeFeed& feed, std::vector<LeftOutFile>& left_out,
                      const Progress& progress);

// A source of a regular file's bytes, for Files::write. Borrows the descriptor.
Files::Source source_of(int fd, const Progress& progress);

}  // namespace carrel::sandbox
