#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/native/remains.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "storage/home.h"
#include "storage/images/image_use.h"
#include "storage/images/import.h"
#include "storage/state.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMega = 1000 * 1000;
  if (bytes >= 1000 * kMega) {
    return std::to_string(bytes / (1000 * kMega)) + "." +
           std::to_string(bytes / (100 * kMega) % 10) + " GB";
  }
  return bytes >= kMega ? std::to_string(bytes / kMega) + " MB"
                        : std::to_string((bytes + 999) / 1000) + " kB";
}

std::vector<std::string> prefixed(const std::vector<std::string>& digests) {
  std::vector<std::string> all;
  for (const std::string& digest : digests) {
    all.push_back("sha256:" + digest);
  }
  return all;
}

Json image_json(const storage::ImageRecord& record) {
  return Json{{"name", record.name},
              {"digest", "sha256:" + record.digest},
              {"layers", prefixed(record.layers)},
              {"size_bytes", record.bytes},
              {"entries", record.entries},
              {"created_ms", record.created_ms},
              {"config", Json::parse(storage::config_to_json(record.config), nullptr, false)}};
}

// On a terminal, one line that is written over; nothing anywhere else.
class ProgressLine {
 public:
  explicit ProgressLine(const Context& context)
      : shown_(!context.json() && ::isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const storage::Progress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) {
      return;
    }
    last_ = now;
    written_ = true;
    print_error("\r\x1b[K" + printable(progress.what) + ": " + size_text(progress.done) +
                (progress.total > 0
                     ? ", " + std::to_string(progress.done * 100 / progress.total) + "%"
                     : ""));
  }
  void clear() {
    if (std::exchange(written_, false)) {
      print_error("\r\x1b[K");
    }
  }

 private:
  bool shown_;
  bool written_ = false;
  std::chrono::steady_clock::time_point last_;
};

std::string left_out_text(const storage::LeftOut& left_out) {
  std::string text;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(what);
    }
  };
  add(left_out.devices, "devices, pipes or sockets");
  add(left_out.set_ids, "set-id bits");
  add(left_out.attributes, "files' extended attributes");
  add(left_out.mounts, "mounted file systems");
  return text;
}

int import_images(const Context& context, const storage::Home& home,
                  const std::vector<std::string>& words) {
  if (words.size() != 1) {
    return fail(context, Error{Code::kInvalid, 0, "image import needs one SOURCE",
                               "a directory, an archive, or - for the standard input"});
  }
  ProgressLine line(context);
  storage::ImportRequest request;
  request.source = words.front();
  request.name = std::string(context.arguments.value(OptionId::kImageName).value_or(""));
  request.listener = [&](const storage::Progress& progress) { line.show(progress); };
  auto imported = storage::import_image(home, request);
  line.clear();
  if (!imported.ok()) {
    return fail(context, imported.error());
  }
  Json list = Json::array();
  for (const storage::Imported& image : imported.value()) {
    const storage::LeftOut& left_out = image.left_out;
    Json object = image_json(image.record);
    object["left_out"] = {{"devices", left_out.devices},
                          {"set_ids", left_out.set_ids},
                          {"attributes", left_out.attributes},
                          {"mounts", left_out.mounts}};
    list.push_back(object);
    if (context.json()) {
      continue;
    }
    print(image.record.name + "\n");
    if (const std::string text = left_out_text(left_out);
        !text.empty() && ::isatty(STDERR_FILENO) != 0) {
      print_error("carrel: left out of '" + image.record.name + "': " + text + "\n");
    }
  }
  if (context.json()) {
    print(Json{{"images", list}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return 0;
}

int list_all(const Context& context, const storage::Home& home) {
  auto images = storage::list_images(home);
  if (!images.ok()) {
    return fail(context, images.error());
  }
  if (context.json()) {
    Json list = Json::array();
    for (const storage::ImageRecord& record : images.value()) {
      list.push_back(image_json(record));
    }
    print(Json{{"images", list}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> lines = {{"NAME", "DIGEST", "LAYERS", "SIZE", "AGE"}};
  const std::int64_t now = storage::wall_clock_ms();
  for (const storage::ImageRecord& record : images.value()) {
    lines.push_back({record.name, record.digest.substr(0, 12), std::to_string(record.layers.size()),
                     size_text(record.bytes), age(now - record.created_ms)});
  }
  print(table(lines));
  return 0;
}

int remove_named(const Context& context, const storage::Home& home,
                 const std::vector<std::string>& words) {
  if (words.empty()) {
    return fail(context, Error{Code::kInvalid, 0, "image rm needs the NAME of an image",
                               "'carrel image ls' shows them"});
  }
  auto removed = storage::remove_images(home, words);
  if (!removed.ok()) {
    return fail(context, removed.error());
  }
  if (context.json()) {
    print(Json{{"removed", removed.value().names}}.dump() + "\n");
    return 0;
  }
  for (const std::string& name : removed.value().names) {
    print(name + "\n");
  }
  return 0;
}

int prune(const Context& context, const storage::Home& home) {
  auto swept = storage::prune_images(home);
  if (!swept.ok()) {
    return fail(context, swept.error());
  }
  const std::size_t layers = swept.value().layers;
  const std::size_t roots = swept.value().roots;
  print(context.json() ? Json{{"layers", layers}, {"roots", roots}}.dump() + "\n"
                       : "removed " + std::to_string(layers) + " layers and " +
                             std::to_string(roots) + " roots that no image needs\n");
  return 0;
}

}  // namespace

int image_command(const Context& context) {
  const std::vector<std::string_view>& operands = context.arguments.operands;
  const std::string_view action = operands.front();
  const std::vector<std::string> words(operands.begin() + 1, operands.end());
  if (action != "import" && context.arguments.has(OptionId::kImageName)) {
    return fail(context, Error{Code::kInvalid, 0, "--name belongs to image import", {}});
  }
  if ((action == "ls" || action == "prune") && !words.empty()) {
    return fail(context, Error{Code::kInvalid, 0, "unexpected word '" + words.front() + "'", {}});
  }
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  if (action == "import") {
    return import_images(context, home.value(), words);
  }
  if (action == "ls") {
    return list_all(context, home.value());
  }
  return action == "rm" ? remove_named(context, home.value(), words) : prune(context, home.value());
}

}  // namespace carrel::cli
