#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"
#include "sandbox/files.h"
#include "tools/cancel.h"

namespace carrel::tools {

// Where the commands of tools run. Tools never learn more about it than this.
class Commands {
 public:
  virtual ~Commands() = default;
  // To its end, with its output, bounded, in the result; both streams in order as its stdout if
  // the request wants them merged. kTimeout with ECANCELED when it was
  // cancelled; the command is ended then.
  virtual Result<sandbox::ExecResult> run(const sandbox::CommandRequest& request,
                                          const Cancel& cancel) = 0;
  // For the description of a tool: "in a sandbox ...".
  [[nodiscard]] virtual std::string where() const = 0;
  // Whether one command finds the shell as the one before left it.
  enum class State { kKept, kFresh };
  [[nodiscard]] virtual State state() const = 0;
};

// Where the files of tools are. Paths are relative to the workspace, and were checked.
class FileStore {
 public:
  virtual ~FileStore() = default;
  struct Text {
    std::string text;
    bool cut = false;  // there is more
  };
  virtual Result<Text> read(const std::string& path, const sandbox::ReadRange& range,
                            std::size_t limit) = 0;
  virtual Status write(const std::string& path, std::string_view contents,
                       const sandbox::WriteOptions& options) = 0;
  // The only occurrence of a text; returns its line.
  virtual Result<std::uint64_t> replace(const std::string& path, std::string_view old_text,
                                        std::string_view new_text) = 0;
  virtual Status remove(const std::string& path) = 0;
  // What is below, without what tools fill and write by themselves.
  virtual Result<std::vector<sandbox::FileInfo>> list(const std::string& path,
                                                      std::size_t most) = 0;
  // How to look at a page of its from this host; empty: in no way.
  [[nodiscard]] virtual std::string preview() const = 0;
  // For the description of a tool: "files in a sandbox".
  [[nodiscard]] virtual std::string place() const = 0;
};

// The one spelling of a path that a model gave: relative to /workspace, whose name in front of it
// is left out as a whole component. kDenied with ".." in it, or when it is absolute and elsewhere.
Result<std::string> workspace_path(std::string_view given);

}  // namespace carrel::tools
