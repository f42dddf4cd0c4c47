#include "storage/images/image_use.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "storage/images/download.h"

namespace carrel::storage {

namespace {

// As root a sandbox runs as somebody else, who must be let through to its image.
Status check_passage(const std::string& path) {
  if (::geteuid() != 0) {
    return {};
  }
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string above = path.substr(0, slash);
    struct stat info{};
    if (::stat(above.c_str(), &info) == 0 && (info.st_mode & 0001) == 0) {
      return Error{Code::kDenied, 0, "sandboxes cannot get to the images through '" + above + "'",
                   "chmod o+x it, or set CARREL_HOME to a directory that others can pass"};
    }
  }
  return {};
}

// Whether the image's files stay because they have a name that is not among those to be removed.
bool has_another_name(const std::vector<ImageRecord>& all, const ImageRecord& image,
                      const std::vector<std::string>& removed) {
  return std::any_of(all.begin(), all.end(), [&](const ImageRecord& other) {
    const bool goes = std::any_of(removed.begin(), removed.end(), [&](const std::string& name) {
      return other.name == name || other.name == name + ":latest";
    });
    return other.root == image.root && other.name != image.name && !goes;
  });
}

}  // namespace

Result<UsedImage> use_image(const Home& home, const std::string& name) {
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  // Between the look at the record and the lock the image may have been replaced or removed.
  constexpr int kTries = 16;
  for (int tries = 0; tries < kTries; ++tries) {
    UsedImage used;
    CARREL_ASSIGN(used.record, store.find(name));
    auto lock = open_at(store.roots(), used.record.root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!lock.ok()) {
      continue;
    }
    used.lock = std::move(lock.value());
    struct stat held{};
    struct stat named{};
    if (::flock(used.lock.get(), LOCK_SH) == 0 && ::fstat(used.lock.get(), &held) == 0 &&
        ::fstatat(store.roots(), used.record.root.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        held.st_ino == named.st_ino) {
      used.path = store.root_path(used.record.root);
      CARREL_TRY(check_passage(used.path));
      return used;
    }
  }
  return Error{Code::kConflict, 0, "the files of image '" + name + "' are missing",
               "import it again"};
}

Result<RemovedImages> remove_images(const Home& home, const std::vector<std::string>& names) {
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  CARREL_TRY(store.lock());
  CARREL_ASSIGN(const std::vector<ImageRecord> all, store.list());
  RemovedImages removed;
  for (const std::string& name : names) {
    auto record = store.find(name);
    if (!record.ok() && record.error().code != Code::kConflict) {  // a damaged one can go
      return record.error();
    }
    if (record.ok() && store.in_use(record.value().root) &&
        !has_another_name(all, record.value(), names)) {
      return Error{Code::kConflict, 0, "image '" + name + "' is used by a sandbox",
                   "remove the sandbox first: carrel ls, carrel rm"};
    }
    removed.names.push_back(record.ok() ? record.value().name : name);
  }
  for (const std::string& name : removed.names) {
    CARREL_TRY(store.remove_record(name));
  }
  CARREL_ASSIGN(removed.swept, store.sweep());
  return removed;
}

Result<ImageStore::Swept> prune_images(const Home& home) {
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  CARREL_TRY(store.lock());
  CARREL_ASSIGN(const UniqueFd downloads, store.open_downloads());
  remove_old_downloads(downloads.get());
  return store.sweep();
}

Result<std::vector<ImageRecord>> list_images(const Home& home) {
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  if (store.try_lock()) {
    (void)store.sweep();
  }
  return store.list();
}

}  // namespace carrel::storage
