#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/home.h"
#include "storage/images/image_record.h"
#include "storage/images/image_store.h"

namespace carrel::storage {

// An image that somebody is about to run. As long as the lock is held, its files stay.
struct UsedImage {
  ImageRecord record;
  std::string path;  // of its root
  UniqueFd lock;
};

Result<UsedImage> use_image(const Home& home, const std::string& name);

struct RemovedImages {
  std::vector<std::string> names;
  ImageStore::Swept swept;
};

// Removes the images of these names, all of them or, when one is missing or used by a sandbox
// under no other name, none; then what no other image needs.
Result<RemovedImages> remove_images(const Home& home, const std::vector<std::string>& names);

// What a crash left, and what no image needs any more.
Result<ImageStore::Swept> prune_images(const Home& home);

// The images there are. Leftovers are swept away unless somebody is at work.
Result<std::vector<ImageRecord>> list_images(const Home& home);

}  // namespace carrel::storage
