#include "manager/once.h"

#include <utility>

namespace carrel::manager {

Status prepare_once(const storage::Home& home, const Chosen& chosen, const FinishRestore& finish,
                    native::OneShot& job, OnceHeld& held) {
  CARREL_TRY(add_workspace(home, job.spec, job.trees, held.workspace, finish));
  if (held.workspace.has_value()) {
    held.workspace->lock.reset();  // that it is in use keeps others away
  }
  CARREL_ASSIGN(held.image, resolve_image(home, chosen, job.spec));
  std::vector<std::string>& arguments = job.command.arguments;
  if (arguments.empty() && held.image.has_value()) {
    const storage::ImageConfig& config = held.image->record.config;
    arguments = config.entrypoint;
    arguments.insert(arguments.end(), config.command.begin(), config.command.end());
  }
  if (arguments.empty() || arguments.front().empty()) {
    return Error{Code::kInvalid, 0, "run needs a command to run", "the image names none"};
  }
  job.command.timeout = job.spec.limits.timeout;
  return {};
}

}  // namespace carrel::manager
