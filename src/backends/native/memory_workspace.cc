#include "backends/native/memory_workspace.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>

#include "base/files.h"

namespace carrel::native {

Result<UniqueFd> open_memory_workspace(const storage::BoxRecord& record) {
  CARREL_ASSIGN(
      const UniqueFd root,
      open_at(AT_FDCWD, "/proc/" + std::to_string(record.pid) + "/root", O_PATH | O_DIRECTORY));
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
  if (!files.valid() && errno == ENOENT) {  // behind gVisor
    return Error{Code::kUnsupported, 0,
                 "the /workspace of sandbox " + record.id + " is in memory of its own kernel's",
                 "make it with --workspace NAME"};
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
