#pragma once

#include <sys/stat.h>

namespace carrel::storage {

// A workload may make files of its workspace that their owner cannot read. An ordinary user enters
// a user namespace of his own, in which that does not stop him: over his own files only. For a
// process of one thread that starts no sandboxes afterwards. Where there are no user namespaces,
// nothing changes. Root needs none.
void gain_rights_over_own_files();

// As root, what this process makes belongs to somebody else while this lives: on the file system of
// a sandbox there are files of its own user only. Root's rights over files stay. For a process of
// one thread.
class FilesAs {
 public:
  enum class Owners { kAny, kOne };
  // With kAny nothing changes.
  FilesAs(const struct stat& owner, Owners owners);
  FilesAs(const FilesAs&) = delete;
  FilesAs& operator=(const FilesAs&) = delete;
  ~FilesAs();

 private:
  bool changed_ = false;
};

}  // namespace carrel::storage
