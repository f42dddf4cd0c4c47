#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/images/tree_copy.h"
#include "storage/images/tree_writer.h"

namespace carrel::storage {

// A layer on disk is a directory with
//
//   tree/       its files
//   whiteouts   what it deletes from the layers below it: 'd' or 'o', the path, a NUL; again and
//               again

// What the name of an entry says about the layers below.
struct Whiteout {
  enum class Kind {
    kNone,     // an ordinary entry
    kDelete,   // .wh.NAME: NAME is gone
    kOpaque,   // .wh..wh..opq: all that was in this directory is gone
    kIgnored,  // .wh..wh.ANYTHING: a note of the tool that made the layer
  };
  Kind kind = Kind::kNone;
  std::string path;
};

// `path` is normal. A whiteout of nothing, of "." or of ".." is an error.
Result<Whiteout> whiteout_of(const std::string& path);
std::string encode_whiteout(const Whiteout& whiteout);
// What the unpacker wrote; anything else than whiteouts is an error.
Result<std::vector<Whiteout>> decode_whiteouts(std::string_view text);

// Puts the layer in the directory `layer` over what is in `root`.
Status apply_layer(int layer, TreeWriter& root);

}  // namespace carrel::storage
