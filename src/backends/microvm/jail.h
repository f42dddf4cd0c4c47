#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// The namespaces and the root that a virtual machine's processes are in.
namespace carrel::microvm {

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
  int source = -1;  // whose content it gets
};
// Makes a root in memory with the `needed` paths of the host, read-only, and these files, and moves
// into it. Nothing else of the host can be named after that. A path that is missing is left out.
Status enter_root(const std::string& stage, const std::vector<std::string>& needed,
                  const std::vector<JailFile>& files);

// CRITICAL: before anything that comes from the machine is read. No capability, no way to gain one,
// nobody else of the user's can look at its memory.
Status drop_rights();
// That, and the filter for Carrel's own processes: those that show, that carry, and that
// change files.
enum class Post { kBesideMachine, kPorter, kClerk };
Status lock_in(Post post);

}  // namespace carrel::microvm
