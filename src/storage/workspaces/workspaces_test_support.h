#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "base/sha256.h"
#include "storage/state.h"
#include "storage/workspaces/snapshot.h"

namespace carrel::storage {

// Counts who stands still; the test does nothing else meanwhile.
class CountedWriters : public Writers {
 public:
  Status freeze() override {
    ++frozen;
    return {};
  }
  void thaw() override { --frozen; }
  int frozen = 0;
};

class WorkspacesTest : public ::testing::Test {
 protected:
  WorkspacesTest() {
    char name[] = "/tmp/carrel-workspaces-XXXXXX";
    root_ = ::mkdtemp(name);
    ::umask(022);
    home_.emplace(std::move(Home::open_at(root_).value()));
    store_.emplace(std::move(WorkspaceStore::open(*home_).value()));
    WorkspaceRow row;
    row.name = "w";
    row.created_ms = wall_clock_ms();
    EXPECT_TRUE(store_->ensure(row).ok());
  }
  ~WorkspacesTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  [[nodiscard]] std::string tree() const { return root_ + "/workspaces/w/tree"; }
  void write(const std::string& path, const std::string& text) const {
    const std::string whole = tree() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    std::ofstream(whole, std::ios::binary) << text;
  }
  SnapshotRow snapshot(const std::string& name = {}) {
    auto taken = take_snapshot(*store_, store_->find("w").value(), {.name = name}, writers_);
    EXPECT_TRUE(taken.ok()) << (taken.ok() ? "" : taken.error().to_string());
    EXPECT_EQ(writers_.frozen, 0);
    return taken.ok() ? taken.value() : SnapshotRow{};
  }
  std::vector<std::string> changed_in(const SnapshotRow& row) {
    std::vector<std::string> lines;
    const std::vector<TreeEntry> changes = store_->read_changes(row.layers.back()).value();
    for (const TreeEntry& entry : changes) {
      lines.push_back(std::string(1, static_cast<char>(entry.kind)) + " " + entry.path);
    }
    return lines;
  }
  // What somebody who looks at the directory sees, in words.
  static std::map<std::string, std::string> look(const std::string& top) {
    std::map<std::string, std::string> seen;
    for (const auto& found : std::filesystem::recursive_directory_iterator(top)) {
      struct stat info{};
      ::lstat(found.path().c_str(), &info);
      std::string text = std::to_string(info.st_mode & 07777) + " " +
                         std::to_string(info.st_mtim.tv_sec) + "." +
                         std::to_string(info.st_mtim.tv_nsec);
      if (S_ISLNK(info.st_mode)) {
        text = "link " + std::filesystem::read_symlink(found.path()).string();
      } else if (S_ISREG(info.st_mode)) {
        std::ifstream file(found.path(), std::ios::binary);
        text += " " + sha256(std::string(std::istreambuf_iterator<char>(file), {}));
      } else if (S_ISDIR(info.st_mode)) {
        text = "directory " + std::to_string(info.st_mode & 07777);
      }
      seen[found.path().string().substr(top.size() + 1)] = text;
    }
    return seen;
  }
  // The same of a snapshot.
  std::map<std::string, std::string> look(const SnapshotRow& row) {
    std::map<std::string, std::string> seen;
    const Tree tree = store_->read_tree(row.layers).value();
    for (const auto& [path, node] : tree) {
      const TreeEntry& entry = node.entry;
      std::string text = std::to_string(entry.mode) + " " +
                         std::to_string(entry.mtime_ns / 1'000'000'000) + "." +
                         std::to_string(entry.mtime_ns % 1'000'000'000);
      if (entry.kind == EntryKind::kLink) {
        text = "link " + entry.target;
      } else if (entry.kind == EntryKind::kFile) {
        text += " " + hash_to_hex(entry.hash);
        // And the layer has what its list says.
        std::ifstream file(root_ + "/layers/" + node.layer + "/tree/" + path, std::ios::binary);
        EXPECT_EQ(sha256(std::string(std::istreambuf_iterator<char>(file), {})),
                  hash_to_hex(entry.hash))
            << path;
      } else if (entry.kind == EntryKind::kDirectory) {
        text = "directory " + std::to_string(entry.mode);
      }
      seen[path] = text;
    }
    return seen;
  }

  std::string root_;
  std::optional<Home> home_;
  std::optional<WorkspaceStore> store_;
  CountedWriters writers_;
};

}  // namespace carrel::storage
