#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sandbox/files.h"
#include "sandbox/tree_from_host.h"

namespace carrel::sandbox {

// Takes a tar apart (ustar, with the long names of GNU and pax; whole or by gzip) and tells it as a
// tree. The archive is hostile: an entry that leads out of the tree, is no file, directory or link,
// or has a name that no file can have is added to `left_out`, and the rest goes on. An archive that
// is broken is an error.
Status feed_tar(const Files::Source& archive, TreeFeed& feed, std::vector<LeftOutFile>& left_out,
                const Progress& progress);

// Composes a tar (ustar with pax headers) from a tree. Names are below `top`; empty: as they are.
class TarSink : public TreeSink {
 public:
  TarSink(std::string top, Files::Sink out) : top_(std::move(top)), out_(std::move(out)) {}

  Status entry(const protocol::FileEntry& entry) override;
  Status contents(std::string_view data) override;
  Status hole(std::uint64_t size) override;
  // The end of the archive.
  Status finish();

 private:
  Status finish_file();
  Status zeros(std::uint64_t size);
  Status write_header(char type, const std::string& path, const protocol::FileEntry& entry);

  std::string top_;
  Files::Sink out_;
  std::uint64_t left_ = 0;     // of the contents that the header announced
  std::uint64_t padding_ = 0;  // after them
};

}  // namespace carrel::sandbox
