#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "base/sha256.h"
#include "base/unique_fd.h"
#include "storage/images/registry.h"

namespace carrel::storage {

// A blob on its way into images/downloads, in a file named by its digest that is locked as long as
// this lives. What arrived stays there when the download breaks off, and the next one goes on
// behind it.
class Download {
 public:
  // Waits while somebody else downloads the same blob. `directory` is borrowed.
  static Result<Download> open(int directory, std::string digest, std::uint64_t size);

  using Listener = std::function<void(std::uint64_t done)>;
  // Gets what is missing, with a few new attempts when the connection fails. Then the file has the
  // digest and the size; a file that turns out wrong is removed.
  Status finish(Registry& registry, const Listener& listener);

  // Takes the file away.
  void remove() const;

 private:
  Download(int directory, std::string digest, std::uint64_t size)
      : directory_(directory), digest_(std::move(digest)), size_(size) {}

  Status hash_what_is_there();
  Status restart();
  Status append(std::string_view bytes);
  Status attempt(Registry& registry, const Listener& listener);
  Status check();

  int directory_;
  std::string digest_;
  std::uint64_t size_;
  std::uint64_t done_ = 0;
  Sha256 hash_;
  UniqueFd file_;
};

// Removes the downloads that broke off and that nobody goes on with now.
void remove_old_downloads(int directory);

}  // namespace carrel::storage
