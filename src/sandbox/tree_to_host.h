#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/tree_writer.h"
#include "base/unique_fd.h"
#include "sandbox/files.h"
#include "sandbox/tree_from_host.h"

namespace carrel::sandbox {

// Writes what comes from a sandbox to a path of the host: a file or a directory of that name, or
// one named `name` in it if the path is a directory; with an empty `name` a tree's contents go into
// the directory. Everything is written by descriptor below that place; no link is followed, no
// device made, no set-id bit kept, and no directory replaced. A new file or tree gets its name when
// it is complete: call finish(). Without that call nothing new is left.
class TreeToHost : public TreeSink {
 public:
  TreeToHost(std::string path, std::string name, Progress progress)
      : path_(std::move(path)), name_(std::move(name)), progress_(std::move(progress)) {}
  ~TreeToHost() override;
  TreeToHost(const TreeToHost&) = delete;
  TreeToHost& operator=(const TreeToHost&) = delete;

  Status entry(const protocol::FileEntry& entry) override;
  Status contents(std::string_view data) override;
  Status hole(std::uint64_t size) override;
  Status finish();
  // Where it went.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Status begin(const protocol::FileEntry& entry);
  Status begin_tree();
  Status begin_file(const protocol::FileEntry& entry);
  Status finish_file();

  std::string path_;
  std::string name_;
  Progress progress_;
  UniqueFd parent_;        // holds what is made
  std::string temporary_;  // its name until it is complete; empty: there is none
  std::string last_;       // its name then
  UniqueFd top_;
  std::optional<TreeWriter> tree_;
  UniqueFd file_;
  unsigned mode_ = 0;
  std::uint64_t modified_ns_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t entries_ = 0;
  bool begun_ = false;
  bool sparse_end_ = false;
};

}  // namespace carrel::sandbox
