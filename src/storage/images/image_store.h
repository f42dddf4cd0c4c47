#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"
#include "storage/images/image_record.h"

namespace carrel::storage {

// The images of an installation, in CARREL_HOME/images:
//
//   lock          held by whoever changes anything here
//   names/NAME    the record of an image, JSON
//   layers/HEX/   an unpacked layer, by the digest of its archive; see layer.h
//   roots/HEX/    the files of one image, its layers put together; a random name, and a shared lock
//                 on the directory as long as somebody uses it
//   new/          what is being made, and what is being removed
//   downloads/    archives on their way here, by their digest; see download.h. There after the
//   first
//
// A layer and a root are finished and synced before they get their name, and a record is written
// after both. So a crash leaves the old state or the new one, and things without a record, which
// the next change takes away.
class ImageStore {
 public:
  static Result<ImageStore> open(const Home& home);

  // Waits until nobody else changes anything.
  Status lock();
  // The same, without waiting. False: somebody else is at work.
  bool try_lock();

  // A new empty directory in new/. Needs the lock, as everything below does.
  Result<std::string> make_draft();
  [[nodiscard]] int directory() const { return images_.get(); }
  [[nodiscard]] int drafts() const { return new_.get(); }
  // Syncs the draft and gives it its name. A layer that is already there stays.
  Status publish_layer(const std::string& draft, const std::string& digest);
  Status publish_root(const std::string& draft, const std::string& root);
  Status publish_record(const ImageRecord& record);
  Status remove_record(const std::string& name);

  [[nodiscard]] bool has_layer(const std::string& digest) const;
  Result<UniqueFd> open_layer(const std::string& digest) const;

  struct Swept {
    std::size_t layers = 0;
    std::size_t roots = 0;
  };
  // Removes drafts, and the layers and roots that no record names and no sandbox uses. As long as a
  // record is damaged, nobody knows which: then only drafts.
  Result<Swept> sweep();

  // The images, by name; one whose record is damaged is left out. No lock is needed.
  Result<std::vector<ImageRecord>> list() const;
  // The image of that name, or of that name with ":latest". "NAME@sha256:HEX" is one of that
  // digest, under that name or that name with any tag; nothing else will do.
  Result<ImageRecord> find(const std::string& name) const;
  // Whether a sandbox uses the root: one that is running now, or a long-lived one.
  [[nodiscard]] bool in_use(const std::string& root) const;

  // The folder of downloads, made at need. No lock is needed: each download has its own.
  Result<UniqueFd> open_downloads() const;

  [[nodiscard]] std::string root_path(const std::string& root) const;
  [[nodiscard]] int roots() const { return roots_.get(); }

 private:
  Status publish(const std::string& draft, const UniqueFd& directory, const std::string& name);
  Result<ImageRecord> find_pinned(const std::string& name, const std::string& digest) const;
  Status discard(const UniqueFd& directory, const std::string& name);

  const Home* home_ = nullptr;
  UniqueFd images_;
  UniqueFd names_;
  UniqueFd layers_;
  UniqueFd roots_;
  UniqueFd new_;
  UniqueFd lock_;
};

// "image 'x' is not here", with what to do about it.
Error no_such_image(const std::string& name);

}  // namespace carrel::storage
