#include "storage/images/image_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/sha256.h"
#include "storage/images/oci_json.h"
#include "storage/state.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kLargestRecord = 4U << 20;

// As root a sandbox's user is somebody else, who has to get through to the image but may see
// nothing on the way: a root's name is random, and no directory above it can be listed.
unsigned passage_mode() { return ::geteuid() == 0 ? 0711 : 0700; }

Result<UniqueFd> open_folder(int parent, const std::string& name, unsigned mode) {
  if (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("make directory '" + name + "'");
  }
  CARREL_ASSIGN(UniqueFd fd, open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::fchmod(fd.get(), mode) != 0) {
    return system_error("open directory '" + name + "'");
  }
  return fd;
}

bool is_record(const std::string& file) { return file.ends_with(".json"); }

Status sync_directory(const UniqueFd& directory) {
  if (::fsync(directory.get()) != 0) {
    return system_error("sync the images");
  }
  return {};
}

}  // namespace

Error no_such_image(const std::string& name) {
  return Error{Code::kNotFound, 0, "image '" + name + "' is not here",
               name.find('@') == std::string::npos
                   ? "carrel image pull " + name + ", or carrel image import FILE --name " + name
                   : "carrel image pull " + name};
}

Result<ImageStore> ImageStore::open(const Home& home) {
  ImageStore store;
  store.home_ = &home;
  auto finish = [&]() -> Status {
    if (::geteuid() == 0) {
      struct stat info{};
      if (::fstat(home.directory(), &info) != 0 ||
          ::fchmod(home.directory(), (info.st_mode & 0777) | 0011) != 0) {
        return system_error("let sandboxes through to the images");
      }
    }
    CARREL_ASSIGN(store.images_, open_folder(home.directory(), "images", passage_mode()));
    const int images = store.images_.get();
    CARREL_ASSIGN(store.names_, open_folder(images, "names", 0700));
    CARREL_ASSIGN(store.layers_, open_folder(images, "layers", 0700));
    CARREL_ASSIGN(store.roots_, open_folder(images, "roots", passage_mode()));
    CARREL_ASSIGN(store.new_, open_folder(images, "new", 0700));
    return {};
  };
  if (Status opened = finish(); !opened.ok()) {
    opened.error().message = "the images in '" + home.path() + "': " + opened.error().message;
    return opened.error();
  }
  return store;
}

Status ImageStore::lock() {
  CARREL_ASSIGN(lock_, open_at(images_.get(), "lock", O_RDWR | O_CREAT, 0600));
  while (::flock(lock_.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return system_error("lock the images");
    }
  }
  return {};
}

bool ImageStore::try_lock() {
  auto file = open_at(images_.get(), "lock", O_RDWR | O_CREAT, 0600);
  if (!file.ok() || ::flock(file.value().get(), LOCK_EX | LOCK_NB) != 0) {
    return false;
  }
  lock_ = std::move(file.value());
  return true;
}

Result<std::string> ImageStore::make_draft() {
  std::string name = random_hex(32);
  if (::mkdirat(new_.get(), name.c_str(), 0755) != 0) {
    return system_error("make a directory for the image");
  }
  return name;
}

Status ImageStore::publish(const std::string& draft, const UniqueFd& directory,
                           const std::string& name) {
  CARREL_ASSIGN(UniqueFd made, open_at(new_.get(), draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::syncfs(made.get()) != 0) {
    return system_error("write the image to the disk");
  }
  if (::renameat(new_.get(), draft.c_str(), directory.get(), name.c_str()) != 0) {
    return system_error("keep the image");
  }
  return sync_directory(directory);
}

Status ImageStore::publish_layer(const std::string& draft, const std::string& digest) {
  return has_layer(digest) ? remove_tree_at(new_.get(), draft) : publish(draft, layers_, digest);
}

Status ImageStore::publish_root(const std::string& draft, const std::string& root) {
  return publish(draft, roots_, root);
}

Status ImageStore::publish_record(const ImageRecord& record) {
  CARREL_TRY(replace_file_at(names_.get(), record_file(record.name), record_to_json(record), 0600));
  return sync_directory(names_);
}

Status ImageStore::remove_record(const std::string& name) {
  if (::unlinkat(names_.get(), record_file(name).c_str(), 0) != 0) {
    return errno == ENOENT ? no_such_image(name) : system_error("remove image '" + name + "'");
  }
  return sync_directory(names_);
}

bool ImageStore::has_layer(const std::string& digest) const {
  struct stat info{};
  return is_sha256(digest) &&
         ::fstatat(layers_.get(), digest.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<UniqueFd> ImageStore::open_layer(const std::string& digest) const {
  return open_at(layers_.get(), digest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// By way of new/, so that a crash leaves no half of it under its name.
Status ImageStore::discard(const UniqueFd& directory, const std::string& name) {
  if (::renameat(directory.get(), name.c_str(), new_.get(), name.c_str()) != 0) {
    return system_error("remove a part of an image");
  }
  return remove_tree_at(new_.get(), name);
}

Result<ImageStore::Swept> ImageStore::sweep() {
  CARREL_ASSIGN(const std::vector<std::string> drafts, list_directory(new_.get()));
  for (const std::string& draft : drafts) {
    CARREL_TRY(remove_tree_at(new_.get(), draft));
  }
  std::set<std::string> named;
  CARREL_ASSIGN(const std::vector<std::string> files, list_directory(names_.get()));
  for (const std::string& file : files) {
    if (!is_record(file)) {
      ::unlinkat(names_.get(), file.c_str(), 0);  // one that was never finished
      continue;
    }
    CARREL_ASSIGN(const std::string text, read_file_at(names_.get(), file, kLargestRecord));
    auto record = record_from_json(text);
    if (!record.ok()) {
      return Swept{};
    }
    named.insert(record.value().layers.begin(), record.value().layers.end());
    named.insert(record.value().root);
  }
  Swept swept;
  CARREL_ASSIGN(const std::vector<std::string> layers, list_directory(layers_.get()));
  for (const std::string& layer : layers) {
    if (!named.contains(layer)) {
      CARREL_TRY(discard(layers_, layer));
      ++swept.layers;
    }
  }
  CARREL_ASSIGN(const std::vector<std::string> roots, list_directory(roots_.get()));
  for (const std::string& root : roots) {
    if (named.contains(root) || in_use(root)) {
      continue;
    }
    // Whoever finds the directory now waits for this lock, and then finds it gone.
    CARREL_ASSIGN(UniqueFd held, open_at(roots_.get(), root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (::flock(held.get(), LOCK_EX | LOCK_NB) == 0) {
      CARREL_TRY(discard(roots_, root));
      ++swept.roots;
    }
  }
  return swept;
}

Result<std::vector<ImageRecord>> ImageStore::list() const {
  CARREL_ASSIGN(const std::vector<std::string> files, list_directory(names_.get()));
  std::vector<ImageRecord> records;
  for (const std::string& file : files) {
    auto text = read_file_at(names_.get(), file, kLargestRecord);
    if (!text.ok() || !is_record(file)) {
      continue;
    }
    if (auto record = record_from_json(text.value()); record.ok()) {
      records.push_back(std::move(record.value()));
    }
  }
  std::sort(records.begin(), records.end(),
            [](const ImageRecord& a, const ImageRecord& b) { return a.name < b.name; });
  return records;
}

Result<UniqueFd> ImageStore::open_downloads() const {
  return open_folder(images_.get(), "downloads", 0700);
}

Result<ImageRecord> ImageStore::find_pinned(const std::string& name,
                                            const std::string& digest) const {
  CARREL_ASSIGN(const std::vector<ImageRecord> records, list());
  const ImageRecord* other = nullptr;
  for (const ImageRecord& record : records) {
    const std::size_t colon = record.name.rfind(':');
    if (record.name != name && record.name.substr(0, colon) != name) {
      continue;
    }
    if (record.digest == digest || record.index_digest == digest) {
      return record;
    }
    other = &record;
  }
  if (other != nullptr) {
    return Error{Code::kDenied,
                 0,
                 "image '" + other->name + "' has the digest sha256:" + other->digest +
                     ", not sha256:" + digest,
                 {}};
  }
  return no_such_image(name + "@sha256:" + digest);
}

Result<ImageRecord> ImageStore::find(const std::string& name) const {
  if (const std::size_t at = name.find('@'); at != std::string::npos) {
    return find_pinned(name.substr(0, at), sha256_of(name.substr(at + 1)));
  }
  for (const std::string& candidate : {name, name + ":latest"}) {
    if (!is_image_name(candidate)) {
      continue;
    }
    auto text = read_file_at(names_.get(), record_file(candidate), kLargestRecord);
    if (text.ok()) {
      return record_from_json(text.value());
    }
    if (text.error().error_number != ENOENT) {
      return text.error();
    }
  }
  return no_such_image(name);
}

bool ImageStore::in_use(const std::string& root) const {
  auto held = open_at(roots_.get(), root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!held.ok() || ::flock(held.value().get(), LOCK_EX | LOCK_NB) != 0) {
    return held.ok();
  }
  struct stat info{};
  if (::fstatat(home_->directory(), "state.db", &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return false;
  }
  // A long-lived sandbox outlives the process that could hold a lock for it; its row does not.
  auto state = State::open(*home_);
  if (!state.ok()) {
    return true;
  }
  auto rows = state.value().list(State::Which::kLive);
  if (!rows.ok()) {
    return true;
  }
  const std::string image = "dir:" + root_path(root);
  return std::any_of(rows.value().begin(), rows.value().end(), [&](const SandboxRow& row) {
    const auto spec = nlohmann::json::parse(row.spec, nullptr, false);
    return spec.is_object() && spec.value("image", nlohmann::json()) == image;
  });
}

std::string ImageStore::root_path(const std::string& root) const {
  return home_->path() + "/images/roots/" + root;
}

}  // namespace carrel::storage
