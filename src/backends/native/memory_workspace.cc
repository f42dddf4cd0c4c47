#include "backends/native/memory_workspace.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/files.h"

namespace carrel::native {

namespace {

// Behind gVisor, or in a machine.
Error in_another_kernel(const storage::BoxRecord& record) {
  return Error{Code::kUnsupported, 0,
               "the /workspace of sandbox " + record.id + " is in memory of its own kernel's",
               "make it with --workspace NAME, if its backend has named workspaces"};
}

}  // namespace

Result<UniqueFd> open_memory_workspace(const storage::BoxRecord& record) {
  auto opened =
      open_at(AT_FDCWD, "/proc/" + std::to_string(record.pid) + "/root", O_PATH | O_DIRECTORY);
  if (!opened.ok()) {
    // Who stands for such a kernel on the host shows nobody but root the directory that he is in.
    return opened.error().error_number == EACCES && storage::is_alive(record)
               ? in_another_kernel(record)
               : opened.error();
  }
  const UniqueFd root = std::move(opened.value());
  // CRITICAL: another process may have had that number by then. What is open is the sandbox's if
  // its process is there afterwards.
  if (!storage::is_alive(record)) {
    return storage::no_such_box(record.id);
  }
  struct open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  UniqueFd files(
      static_cast<int>(::syscall(SYS_openat2, root.get(), "workspace", &how, sizeof how)));
  if (!files.valid() && errno == ENOENT) {
    return in_another_kernel(record);
  }
  if (!files.valid()) {
    return system_error("open the /workspace of sandbox " + record.id);
  }
  // CRITICAL: on any other file system somebody else could be behind it.
  struct statfs info{};
  if (::fstatfs(files.get(), &info) != 0 || info.f_type != TMPFS_MAGIC) {
    return Error{
        Code::kInvalid, 0, "the /workspace of sandbox " + record.id + " is not in its memory", {}};
  }
  return files;
}

}  // namespace carrel::native
