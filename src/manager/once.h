#pragma once

#include <optional>

#include "backends/native/one_shot.h"
#include "backends/native/workspace.h"
#include "base/result.h"
#include "manager/making.h"
#include "storage/home.h"
#include "storage/images/image_use.h"

namespace carrel::manager {

// What has to be held as long as a one-shot runs.
struct OnceHeld {
  std::optional<native::UsedWorkspace> workspace;
  std::optional<storage::UsedImage> image;
};

// Completes a one-shot whose spec, mounts and command are known: its workspace, its image, the
// image's own command where none was given, and the timeout.
Status prepare_once(const storage::Home& home, const Chosen& chosen, const FinishRestore& finish,
                    native::OneShot& job, OnceHeld& held);

}  // namespace carrel::manager
