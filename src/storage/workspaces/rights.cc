#include "storage/workspaces/rights.h"

#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>

#include "base/files.h"

namespace carrel::storage {

void gain_rights_over_own_files() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (user == 0 || ::unshare(CLONE_NEWUSER) != 0) {
    return;
  }
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // else the maps are root's
  const auto map = [](unsigned id) {
    const std::string text = std::to_string(id);
    return text + " " + text + " 1";
  };
  (void)write_value_at(AT_FDCWD, "/proc/self/setgroups", "deny");
  (void)write_value_at(AT_FDCWD, "/proc/self/gid_map", map(group));
  (void)write_value_at(AT_FDCWD, "/proc/self/uid_map", map(user));
}

FilesAs::FilesAs(const struct stat& owner, Owners owners) {
  if (owners == Owners::kAny || ::geteuid() != 0) {
    return;
  }
  const int bits = ::prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
  ::prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
  ::setfsgid(owner.st_gid);
  ::setfsuid(owner.st_uid);
  changed_ = true;
}

FilesAs::~FilesAs() {
  if (changed_) {
    ::setfsuid(::geteuid());
    ::setfsgid(::getegid());
  }
}

}  // namespace carrel::storage
