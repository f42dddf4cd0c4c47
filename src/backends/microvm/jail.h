#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// The namespaces and the root that a virtual machine's processes are in.
namespace carrel::microvm {

inline constexpr std::uint32_t kJailId = 1000;  // the only one there is, of users and of groups

// Namespaces of all kinds, with one id that is not root. The next child is the first process of the
// PID namespace.
Status enter_namespaces();

// A mount of its own of what is at a path of the host, read-only, with all that is mounted in it.
Result<UniqueFd> copy_mount(const std::string& path);
Result<UniqueFd> copy_mount(int source);
// One without devices and set-id bits, of what is at the path if that is the very file of the
// descriptor; and of a folder alone, with nothing that is mounted in it.
Result<UniqueFd> copy_given(const std::string& path, int file);
Result<UniqueFd> clone_mount(int folder);

struct JailFile {
  std::string path;
  int source = -1;  // whose content it gets; -1: it is empty
};
// Makes a root in memory with the `needed` paths of the host, read-only, and these files, and moves
// into it. Nothing else of the host can be named after that. A path that is missing is left out.
// `writable`, unless it is empty, is a folder in which a few names can be made, and
// next to no contents.
Status enter_root(const std::string& stage, const std::vector<std::string>& needed,
                  const std::vector<JailFile>& files, const std::string& writable);

// CRITICAL: before anything that comes from the machine is read. No rights (kernel/rights.h), and a
// filter of system calls: for Carrel's own processes, those that show, that carry, and
// that change files; and for a VMM whose own filters depend on how it was built.
enum class Post { kBesideMachine, kPorter, kClerk, kVmm };
Status lock_in(Post post);

}  // namespace carrel::microvm
