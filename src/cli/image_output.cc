#include "cli/image_output.h"

#include <unistd.h>

#include <algorithm>

#include "cli/output.h"
#include "cli/progress_line.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kBarWidth = 24;

std::vector<std::string> prefixed(const std::vector<std::string>& digests) {
  std::vector<std::string> all;
  all.reserve(digests.size());
  for (const std::string& digest : digests) {
    all.push_back("sha256:" + digest);
  }
  return all;
}

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

// "[######..................]", for what is known to end.
std::string bar(const storage::Progress& progress) {
  const std::uint64_t full = std::min(kBarWidth, progress.done * kBarWidth / progress.total);
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "] " +
         std::to_string(std::min<std::uint64_t>(100, progress.done * 100 / progress.total)) +
         "%, " + size_text(progress.done) + " of " + size_text(progress.total);
}

}  // namespace

Json image_json(const storage::ImageRecord& record) {
  Json object{{"name", record.name},
              {"digest", "sha256:" + record.digest},
              {"layers", prefixed(record.layers)},
              {"size_bytes", record.bytes},
              {"entries", record.entries},
              {"created_ms", record.created_ms},
              {"config", Json::parse(storage::config_to_json(record.config), nullptr, false)}};
  if (!record.source.empty()) {
    object["source"] = record.source;
  }
  if (!record.index_digest.empty()) {
    object["index_digest"] = "sha256:" + record.index_digest;
  }
  return object;
}

void print_imported(const Context& context, const std::vector<storage::Imported>& images) {
  Json list = Json::array();
  for (const storage::Imported& image : images) {
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
}

std::string progress_text(const storage::Progress& progress) {
  std::string text(progress.what);
  if (progress.total > 0 || progress.done > 0) {
    text += ": " + (progress.total > 0 ? bar(progress) : size_text(progress.done));
  }
  return text;
}

}  // namespace carrel::cli
