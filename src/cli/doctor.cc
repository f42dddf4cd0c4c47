#include "cli/context.h"
#include "cli/output.h"

namespace carrel::cli {

int doctor_command(const Context& context) {
  return fail(context, Error{Code::kUnavailable, 0, "doctor is not built yet", {}});
}

}  // namespace carrel::cli
