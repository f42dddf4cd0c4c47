#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/home.h"
#include "storage/images/image_record.h"
#include "storage/images/layout.h"
#include "storage/images/tree_copy.h"
#include "storage/images/unpack.h"

namespace carrel::storage {

struct ImportRequest {
  std::string source;  // a directory, an archive, or "-" for the standard input
  std::string name;    // empty: the one that it brings along, or the file's
  ProgressListener listener;
};

struct Imported {
  ImageRecord record;
  LeftOut left_out;
};

// Takes an image into the store: the files of a system in a directory or a tar (plain, gzip, zstd),
// an OCI layout in either, or what `docker save` writes. Which one it is, its contents tell. An
// image of the same name is replaced. When this returns, what it returns is on disk.
Result<std::vector<Imported>> import_image(const Home& home, const ImportRequest& request);

// The same for one image whose layers are files of `directory`: those that the store lacks.
Result<Imported> import_found(const Home& home, const FoundImage& image, int directory,
                              const ImportRequest& request);

}  // namespace carrel::storage
