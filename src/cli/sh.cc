#include <unistd.h>

#include <utility>

#include "base/files.h"
#include "cli/box.h"
#include "cli/context.h"
#include "cli/output.h"

namespace carrel::cli {

namespace {

// The command's text: the operand, or the standard input for "-". A word of the command line ends
// at 128 KiB.
Result<std::string> command_text(const Arguments& arguments) {
  const std::string_view word = arguments.operands[1];
  if (word != "-") {
    return std::string(word);
  }
  if (arguments.has(OptionId::kStdin)) {
    return Error{Code::kInvalid, 0, "'-' and --stdin would both read the standard input", {}};
  }
  auto text = read_all(STDIN_FILENO, protocol::kMaxText);
  if (!text.ok()) {
    text.error().message = "read the command: " + text.error().message;
  }
  return text;
}

}  // namespace

int shell_command(const Context& context) {
  auto text = command_text(context.arguments);
  if (!text.ok()) {
    return fail(context, text.error());
  }
  auto connection = connect(context);
  if (!connection.ok()) {
    return fail(context, connection.error());
  }
  sandbox::CommandRequest request;
  request.shell_text = std::move(text.value());
  request.session = std::string(context.arguments.value(OptionId::kSession).value_or(""));
  request.timeout = timeout_for(context, connection.value().record);
  request.merged = context.arguments.has(OptionId::kMergeOutput);
  int input = context.arguments.has(OptionId::kStdin) ? STDIN_FILENO : -1;
  return run_in_box(context, connection.value(), std::move(request), input);
}

}  // namespace carrel::cli
