#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/files.h"
#include "cli/context.h"
#include "cli/one_shot.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"

namespace carrel::cli {

namespace {

constexpr std::size_t kLargestCode = 2U << 20;

struct Language {
  std::string_view name;
  std::string_view program;
  std::string_view ending;
};
constexpr Language kLanguages[] = {
    {"python", "python3", ".py"}, {"bash", "bash", ".sh"}, {"node", "node", ".js"}};

// The language that was named, or else the one that the file's name tells; python by default.
Result<const Language*> choose_language(const Arguments& arguments, std::string_view file) {
  std::optional<std::string_view> named = arguments.value(OptionId::kLanguage);
  for (const Language& language : kLanguages) {
    if (named.has_value() ? language.name == *named : file.ends_with(language.ending)) {
      return &language;
    }
  }
  if (named.has_value()) {
    return Error{Code::kInvalid, 0, "unknown language '" + printable(*named) + "'",
                 "use python, bash or node"};
  }
  return &kLanguages[0];
}

}  // namespace

int code_command(const Context& context) {
  const std::string file(context.arguments.operands.front());
  auto language = choose_language(context.arguments, file);
  if (!language.ok()) {
    return fail(context, language.error());
  }
  auto spec = sandbox_spec(context.arguments, policy::Operation::kCode);
  if (!spec.ok()) {
    return fail(context, spec.error());
  }
  auto code = file == "-" ? read_all(STDIN_FILENO, kLargestCode)
                          : read_file_at(AT_FDCWD, file, kLargestCode);
  if (!code.ok()) {
    if (code.error().error_number == ENOENT) {
      code.error().code = Code::kNotFound;
    }
    return fail(context, code.error());
  }
  // No code at all is a program that does nothing; the file is there all the same.
  spec.value().code = code.value().empty() ? "\n" : std::move(code.value());
  sandbox::CommandRequest command;
  command.arguments = {std::string(language.value()->program), policy::code_path(spec.value())};
  command.merged = context.arguments.has(OptionId::kMergeOutput);
  int input = context.arguments.has(OptionId::kNoStdin) || file == "-" ? -1 : STDIN_FILENO;
  return run_in_new_sandbox(context, spec.value(), std::move(command), input);
}

}  // namespace carrel::cli
