#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/context.h"
#include "storage/images/import.h"

// What the actions of `carrel image` show of images.
namespace carrel::cli {

nlohmann::ordered_json image_json(const storage::ImageRecord& record);

// The names of new images, one a line, and on a terminal what was left out of them; or one object.
void print_imported(const Context& context, const std::vector<storage::Imported>& images);

// What a ProgressLine shows of an import or a pull.
std::string progress_text(const storage::Progress& progress);

}  // namespace carrel::cli
