#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tools/tool.h"

namespace carrel::tools {

// Procedures that an operator keeps as files named SKILL.md in a folder of the host. They are read
// anew with each use, and from nowhere else: no link is followed, and nothing outside of the folder
// is reached.
class Skills {
 public:
  static constexpr std::size_t kMost = 200;
  static constexpr std::size_t kLongestRead = 100'000;  // bytes

  static Result<Skills> open(const std::string& folder);

  // The paths of all of them, in order, at most kMost.
  [[nodiscard]] Result<std::vector<std::string>> list() const;
  // Also of another file that a skill names. At most kLongestRead bytes of it.
  struct Text {
    std::string text;
    bool cut = false;
  };
  [[nodiscard]] Result<Text> read(const std::string& path) const;
  // "path:line: text" of the lines that have the text in them, in any case.
  [[nodiscard]] Result<std::vector<std::string>> search(const std::string& text) const;

 private:
  explicit Skills(UniqueFd root) : root_(std::move(root)) {}
  UniqueFd root_;
};

std::unique_ptr<Tool> make_skill_tool(Skills skills);

}  // namespace carrel::tools
