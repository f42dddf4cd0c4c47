#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/native/remains.h"
#include "cli/context.h"
#include "cli/image_output.h"
#include "cli/image_sources.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "cli/table.h"
#include "storage/home.h"
#include "storage/images/image_use.h"
#include "storage/state.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

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

// An option of another action is a mistake, never ignored.
Status check_options(const Context& context, std::string_view action) {
  const bool makes = action == "import" || action == "pull" || action == "build";
  const auto belongs = [&](OptionId id, bool fits, const char* what) -> Status {
    return fits || !context.arguments.has(id) ? Status() : Error{Code::kInvalid, 0, what, {}};
  };
  CARREL_TRY(
      belongs(OptionId::kImageName, makes, "--name belongs to image import, pull and build"));
  CARREL_TRY(
      belongs(OptionId::kInsecureHttp, action == "pull", "--insecure-http belongs to image pull"));
  CARREL_TRY(belongs(OptionId::kDebian, action == "build", "--debian belongs to image build"));
  return belongs(OptionId::kSuite, action == "build", "--suite belongs to image build");
}

}  // namespace

int image_command(const Context& context) {
  const std::vector<std::string_view>& operands = context.arguments.operands;
  const std::string_view action = operands.front();
  const std::vector<std::string> words(operands.begin() + 1, operands.end());
  if (const Status fits = check_options(context, action); !fits.ok()) {
    return fail(context, fits.error());
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
  if (action == "pull") {
    return pull_image(context, home.value(), words);
  }
  if (action == "build") {
    return build_image(context, home.value(), words);
  }
  if (action == "ls") {
    return list_all(context, home.value());
  }
  return action == "rm" ? remove_named(context, home.value(), words) : prune(context, home.value());
}

}  // namespace carrel::cli
