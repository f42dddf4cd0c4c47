#pragma once

#include <string>

#include "base/result.h"
#include "http/client.h"
#include "storage/home.h"
#include "storage/images/import.h"

namespace carrel::storage {

struct PullRequest {
  std::string reference;
  std::string name;  // empty: as short_name() says
  http::PlainHttp plain_http = http::PlainHttp::kLoopbackOnly;
  ProgressListener listener;
};

struct Pulled {
  Imported image;
  enum class What { kNew, kUnchanged } what = What::kNew;
};

// Gets an image from a registry into the store: its manifest, of an index the one for this host,
// its configuration, and the layers that are not here yet; each is checked against its digest. The
// store is locked only while layers are unpacked, so that others go on meanwhile.
Result<Pulled> pull_image(const Home& home, const PullRequest& request);

}  // namespace carrel::storage
