#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "tools/workplace.h"

namespace carrel::tools {

// Commands and files of this host, for an operator who says that they are not to be in a sandbox:
// with his rights, in a folder of his.
class HostCommands final : public Commands {
 public:
  explicit HostCommands(std::string folder) : folder_(std::move(folder)) {}

  Result<sandbox::ExecResult> run(const sandbox::CommandRequest& request,
                                  const Cancel& cancel) override;
  [[nodiscard]] std::string where() const override;
  [[nodiscard]] State state() const override { return State::kFresh; }

 private:
  std::string folder_;
};

// No link is followed, and nothing outside of the folder is reached.
class HostFiles final : public FileStore {
 public:
  static Result<std::unique_ptr<HostFiles>> open(const std::string& folder);

  Result<Text> read(const std::string& path, const sandbox::ReadRange& range,
                    std::size_t limit) override;
  Status write(const std::string& path, std::string_view contents,
               const sandbox::WriteOptions& options) override;
  Result<std::uint64_t> replace(const std::string& path, std::string_view old_text,
                                std::string_view new_text) override;
  Status remove(const std::string& path) override;
  Result<std::vector<sandbox::FileInfo>> list(const std::string& path, std::size_t most) override;
  [[nodiscard]] std::string preview() const override { return {}; }
  [[nodiscard]] std::string place() const override;

 private:
  HostFiles(UniqueFd root, std::string folder)
      : root_(std::move(root)), folder_(std::move(folder)) {}
  // The directory that holds `path`, and the name in it.
  struct Place {
    UniqueFd parent;
    std::string name;
  };
  enum class Parents { kMade, kNeeded };
  [[nodiscard]] Result<Place> place_of(const std::string& path, Parents parents) const;

  UniqueFd root_;
  std::string folder_;
};

}  // namespace carrel::tools
