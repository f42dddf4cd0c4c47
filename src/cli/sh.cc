#include <unistd.h>

#include "cli/box.h"
#include "cli/context.h"
#include "cli/output.h"

namespace carrel::cli {

int shell_command(const Context& context) {
  auto connection = connect(context);
  if (!connection.ok()) {
    return fail(context, connection.error());
  }
  sandbox::CommandRequest request;
  request.shell_text = std::string(context.arguments.operands[1]);
  request.session = std::string(context.arguments.value(OptionId::kSession).value_or(""));
  request.timeout = timeout_for(context, connection.value().record);
  request.merged = context.arguments.has(OptionId::kMergeOutput);
  int input = context.arguments.has(OptionId::kStdin) ? STDIN_FILENO : -1;
  return run_in_box(context, connection.value(), std::move(request), input);
}

}  // namespace carrel::cli
