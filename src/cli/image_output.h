#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/context.h"
#include "storage/images/import.h"

// What the actions of `carrel image` show of images.
namespace carrel::cli {

std::string size_text(std::uint64_t bytes);

nlohmann::ordered_json image_json(const storage::ImageRecord& record);

// The names of new images, one a line, and on a terminal what was left out of them; or one object.
void print_imported(const Context& context, const std::vector<storage::Imported>& images);

// On a terminal, one line that is written over; nothing anywhere else.
class ProgressLine {
 public:
  explicit ProgressLine(const Context& context);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const storage::Progress& progress);
  void clear();

 private:
  bool shown_;
  bool written_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace carrel::cli
