#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string_view>

#include "guest/runtime.h"

// Finding files in the sandbox's root. The kernel resolves: links lead beneath the root, magic
// links of /proc nowhere, and nothing blocks. Answers are a descriptor or 0, or a negative errno.
namespace carrel::guest {

// The path from the root: a relative one starts at the sandbox's work dir. -ENAMETOOLONG when it
// does not fit; a component ".." is -EXDEV.
int absolute_path(std::string_view workdir, std::string_view path, Path& out);

// Opens a path from the root, following links inside of it. On kernels without openat2 no link is
// followed.
int open_in_root(const char* path, int flags);
// Opens a regular file for reading, without waiting for anybody; -EISDIR for a directory, -ENXIO
// for a pipe, a socket or a device.
int open_regular(const char* path, struct stat& info);
// The same by a name in a directory, that is no link.
int open_regular_at(int directory, const char* name, struct stat& info);

enum class Parents { kLeave, kMake };

// A name in a directory that is held. Owns the descriptor.
struct Place {
  int parent = -1;
  Text<256> name;

  Place() = default;
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
};

// The directory that holds `path`, and the last name, which is not followed. -EBUSY for the root.
int find_place(const Path& path, Parents parents, Place& place);
// The same for what a link at the end of the path leads to, there or not yet there.
int find_target(const Path& path, Parents parents, Place& place);

// A file that becomes visible under its name when it is complete, and not at all otherwise.
class NewFile {
 public:
  NewFile() = default;
  ~NewFile() { abandon(); }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Begins one that will be `name` in `parent`; both are borrowed.
  int begin(int parent, const char* name, unsigned mode);
  [[nodiscard]] int descriptor() const { return fd_; }
  enum class Over { kAnything, kNothing };
  // Gives it its name. With kNothing it is -EEXIST when there is something of that name.
  int commit(Over over);
  void abandon();

 private:
  int parent_ = -1;
  int fd_ = -1;
  const char* name_ = nullptr;
  Text<64> temporary_;
};

// Makes a directory of that mode, and those above it; one that is there is fine. The descriptor is
// O_PATH.
int make_directories(const Path& path, unsigned mode);

// Sets the time of a change; 0 leaves it.
void set_modified(int fd, std::uint64_t modified_ns);

}  // namespace carrel::guest
