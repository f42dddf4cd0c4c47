#include "cli/context.h"
#include "cli/file_session.h"
#include "cli/output.h"

namespace carrel::cli {

namespace {

// The options that belong to some actions only.
struct OptionUse {
  OptionId option;
  std::string_view name;
  std::string_view actions;
};
constexpr OptionUse kUses[] = {
    {OptionId::kLines, "--lines", "read"},
    {OptionId::kBytes, "--bytes", "read"},
    {OptionId::kMode, "--mode", "write create mkdir"},
    {OptionId::kText, "--text", "write append create rewrite"},
    {OptionId::kRecursive, "--recursive", "ls rm watch"},
    {OptionId::kPattern, "--name", "ls find"},
    {OptionId::kExclude, "--exclude", "ls find grep"},
    {OptionId::kSkipUsual, "--skip-usual", "ls find grep"},
    {OptionId::kIgnoreCase, "--ignore-case", "grep"},
    {OptionId::kLimit, "--limit", "ls find grep"},
};

bool has_word(std::string_view words, std::string_view wanted) {
  bool found = false;
  for_each_word(words, [&](std::string_view word) { found = found || word == wanted; });
  return found;
}

}  // namespace

int file_command(const Context& context) {
  const std::string_view action = context.arguments.operands.front();
  for (const OptionUse& use : kUses) {
    if (context.arguments.has(use.option) && !has_word(use.actions, action)) {
      return fail(context, Error{Code::kInvalid,
                                 0,
                                 std::string(use.name) + " does not belong to file " +
                                     std::string(action) + ", but to " + std::string(use.actions),
                                 {}});
    }
  }
  return has_word("read ls stat find grep watch", action) ? show_file_action(context, action)
                                                          : write_file_action(context, action);
}

}  // namespace carrel::cli
