#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "storage/home.h"

namespace carrel::journal {

// The files of a workspace at a moment.
struct FilesMark {
  std::string snapshot;       // its id in the workspace store; empty: there are no files
  std::string identity;       // SHA-256 over paths, types, modes and contents; see tree_identity.h
  std::uint64_t changed = 0;  // files that were made, written or removed since the one before
};

// What a run does with files. Neither call needs anything of the calling process, which may have
// threads, open databases and sandboxes.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  virtual ~Files() = default;

  // The workspace's name; empty: none.
  [[nodiscard]] virtual std::string workspace() const = 0;
  // What is there now, as a snapshot that is on disk. Whoever runs in it stands still meanwhile.
  // With a holder it cannot be forgotten until that lets go of it (WorkspaceRecords::hold),
  // and both become true at once.
  virtual Result<FilesMark> keep(const std::string& holder) = 0;
  // What is started for these calls has this descriptor, too, until it ends: the lock of the run.
  virtual void share(int /*lock*/) {}
  // Makes the workspace what it was in a snapshot: copied aside, verified, then switched. Nobody
  // may run in it.
  virtual Status put_back(const std::string& snapshot) = 0;
};

// A flow without a workspace: nothing is kept, and nothing is put back.
class NoFiles : public Files {
 public:
  [[nodiscard]] std::string workspace() const override { return {}; }
  Result<FilesMark> keep(const std::string& /*holder*/) override { return FilesMark{}; }
  Status put_back(const std::string& /*snapshot*/) override { return {}; }
};

// A workspace of this home, which exists (storage::WorkspaceStore::ensure) and need not be in use.
// Each call is a run of the carrel program: reading a workload's files takes rights that a process
// with sandboxes is better without.
class WorkspaceFiles : public Files {
 public:
  // `program` is carrel; that is this process in all but tests.
  explicit WorkspaceFiles(std::string workspace, std::string program = "/proc/self/exe")
      : workspace_(std::move(workspace)), program_(std::move(program)) {}

  [[nodiscard]] std::string workspace() const override { return workspace_; }
  Result<FilesMark> keep(const std::string& holder) override;
  void share(int lock) override { lock_ = lock; }
  Status put_back(const std::string& snapshot) override;

 private:
  std::string workspace_;
  std::string program_;
  int lock_ = -1;
};

// Makes a workspace that begins as a snapshot, for a fork or a replay: the workspace that the
// snapshot is of stays as it is. kConflict when there is one of that name. `goes_with` as in
// storage::WorkspaceRow.
Status make_workspace_from(const storage::Home& home, const std::string& snapshot,
                           const std::string& name, const std::string& goes_with = {});

}  // namespace carrel::journal
