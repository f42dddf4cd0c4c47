#pragma once

#include <string>
#include <vector>

#include "cli/context.h"
#include "storage/home.h"

// The actions of `carrel image` that bring an image; `words` are those after the action. Each
// returns the exit status.
namespace carrel::cli {

int import_images(const Context& context, const storage::Home& home,
                  const std::vector<std::string>& words);
int pull_image(const Context& context, const storage::Home& home,
               const std::vector<std::string>& words);
int build_image(const Context& context, const storage::Home& home,
                const std::vector<std::string>& words);

}  // namespace carrel::cli
