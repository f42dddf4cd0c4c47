#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "journal/run.h"
#include "journal/tree_identity.h"
#include "storage/state.h"
#include "storage/workspaces/restore.h"
#include "storage/workspaces/snapshot.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::journal {

// A workspace without a sandbox, in this process.
class StoreFiles : public Files {
 public:
  StoreFiles(const storage::Home& home, std::string name) : home_(home), name_(std::move(name)) {
    storage::WorkspaceRow row;
    row.name = name_;
    row.created_ms = storage::wall_clock_ms();
    EXPECT_TRUE(storage::WorkspaceStore::open(home_).value().ensure(row).ok());
  }
  [[nodiscard]] std::string workspace() const override { return name_; }
  Result<FilesMark> keep(const std::string& holder) override {
    CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home_));
    CARREL_ASSIGN(const storage::WorkspaceRow row, store.find(name_));
    storage::NoWriters nobody;
    CARREL_ASSIGN(
        const storage::SnapshotRow taken,
        storage::take_snapshot(
            store, row, {.holder = holder, .unchanged = storage::Unchanged::kLastOne}, nobody));
    CARREL_ASSIGN(const storage::Tree tree, store.read_tree(taken.layers));
    ++kept;
    return FilesMark{taken.id, identity_of(tree), 0};
  }
  Status put_back(const std::string& snapshot) override {
    if (refusals > 0) {
      --refusals;
      return Error{Code::kConflict, 0, "a sandbox runs in it", {}};
    }
    CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home_));
    CARREL_ASSIGN(const storage::WorkspaceRow row, store.find(name_));
    CARREL_ASSIGN(const storage::SnapshotRow from, store.snapshot(snapshot));
    storage::NoWriters nobody;
    ++put;
    return storage::restore_snapshot(store, row, from, nobody);
  }
  int kept = 0;
  int put = 0;
  int refusals = 0;  // that are still to come

 private:
  const storage::Home& home_;
  std::string name_;
};

class JournalTest : public ::testing::Test {
 protected:
  using Run = journal::Run;  // GoogleTest has a private function of that name

  JournalTest() {
    char name[] = "/tmp/carrel-journal-XXXXXX";
    root_ = ::mkdtemp(name);
    home_ = std::make_unique<storage::Home>(std::move(storage::Home::open_at(root_).value()));
    journal_ = std::make_unique<Journal>(std::move(Journal::open(*home_).value()));
    files_ = std::make_unique<StoreFiles>(*home_, "w");
  }
  ~JournalTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return root_ + "/workspaces/w/tree/" + name;
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::unique_ptr<Run> begin(RunOptions options) {
    if (!options.tell) {
      options.tell = [this](const RunEvent& event) { said_.push_back(event_line(event)); };
    }
    auto run = Run::begin(*journal_, *files_, std::move(options));
    EXPECT_TRUE(run.ok()) << (run.ok() ? "" : run.error().to_string());
    return run.ok() ? std::move(run.value()) : nullptr;
  }
  // A turn that writes its prompt into a file, and says so.
  Result<TurnResult> take(Run& run, const std::string& prompt, const TurnOptions& options = {}) {
    return run.turn({.prompt = prompt}, options, [&](Turn&) -> Result<TurnOutput> {
      ++ran_;
      write("file", prompt);
      return TurnOutput{"did " + prompt, "{}"};
    });
  }
  bool was_said(const std::string& text) const {
    for (const std::string& line : said_) {
      if (line.find(text) != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  std::string root_;
  std::unique_ptr<storage::Home> home_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<StoreFiles> files_;
  std::vector<std::string> said_;
  int ran_ = 0;
};

}  // namespace carrel::journal
