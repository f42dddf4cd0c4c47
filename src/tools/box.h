#pragma once

#include <string>
#include <vector>

#include "manager/commands.h"
#include "storage/box.h"
#include "storage/box_use.h"
#include "storage/home.h"
#include "tools/workplace.h"

namespace carrel::tools {

// A long-lived sandbox as the place where tools work: commands in its shells, files through its
// file worker. Nothing of it touches the host. As long as there is one of these the sandbox counts
// as used.
class Box final : public Commands, public FileStore {
 public:
  static Result<std::unique_ptr<Box>> open(storage::Home home, const std::string& id);

  [[nodiscard]] const storage::BoxRecord& record() const { return record_; }
  [[nodiscard]] const storage::Home& home() const { return home_; }

  Result<sandbox::ExecResult> run(const sandbox::CommandRequest& request,
                                  const Cancel& cancel) override;
  // The same for a command of Carrel's own, which no log has.
  Result<sandbox::ExecResult> run_unlogged(const sandbox::CommandRequest& request,
                                           const Cancel& cancel);
  [[nodiscard]] std::string where() const override;
  [[nodiscard]] State state() const override { return State::kKept; }

  Result<Text> read(const std::string& path, const sandbox::ReadRange& range,
                    std::size_t limit) override;
  Status write(const std::string& path, std::string_view contents,
               const sandbox::WriteOptions& options) override;
  Result<std::uint64_t> replace(const std::string& path, std::string_view old_text,
                                std::string_view new_text) override;
  Status remove(const std::string& path) override;
  Result<std::vector<sandbox::FileInfo>> list(const std::string& path, std::size_t most) override;
  [[nodiscard]] std::string preview() const override;
  [[nodiscard]] std::string place() const override { return "files in the sandbox"; }

  // Commands that nobody waits for. Each call has a connection of its own.
  Result<std::uint64_t> start(const sandbox::CommandRequest& request);
  struct Progress {
    std::string output;  // of both streams, since the offsets
    std::array<std::uint64_t, 2> next{};
    bool running = true;
    sandbox::ExecResult end;  // of one that does not run any more
  };
  // What one has written since `from`, and whether it runs; waits for its end for at most that
  // long.
  Result<Progress> look(std::uint64_t command, const std::array<std::uint64_t, 2>& from,
                        std::chrono::milliseconds patience, const Cancel& cancel);
  // Ends the command with all that it started.
  Status kill(std::uint64_t command);

 private:
  Box(storage::Home home, storage::BoxRecord record, storage::BoxUse use)
      : home_(std::move(home)), record_(std::move(record)), use_(std::move(use)) {}
  Result<sandbox::Files> files();
  template <typename Value>
  void note(std::string_view action, const std::string& path, const Result<Value>& result);

  storage::Home home_;
  storage::BoxRecord record_;
  storage::BoxUse use_;
};

}  // namespace carrel::tools
