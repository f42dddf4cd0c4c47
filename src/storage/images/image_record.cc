#include "storage/images/image_record.h"

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "policy/names.h"

namespace carrel::storage {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostWords = 1024;

std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<std::string> words_of(const Json& object, const char* name) {
  std::vector<std::string> words;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) {
    return words;
  }
  for (const Json& word : *found) {
    if (word.is_string() && words.size() < kMostWords) {
      words.push_back(word.get<std::string>());
    }
  }
  return words;
}

std::int64_t number_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

ImageConfig read_config(const Json& object) {
  ImageConfig config;
  if (!object.is_object()) {
    return config;
  }
  config.environment = words_of(object, "Env");
  config.workdir = text_of(object, "WorkingDir");
  config.user = text_of(object, "User");
  config.entrypoint = words_of(object, "Entrypoint");
  config.command = words_of(object, "Cmd");
  return config;
}

Json write_config(const ImageConfig& config) {
  return Json{{"Env", config.environment},
              {"WorkingDir", config.workdir},
              {"User", config.user},
              {"Entrypoint", config.entrypoint},
              {"Cmd", config.command}};
}

std::string dump(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_root_name(std::string_view name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string record_to_json(const ImageRecord& record) {
  return dump(Json{{"name", record.name},
                   {"digest", record.digest},
                   {"layers", record.layers},
                   {"root", record.root},
                   {"source", record.source},
                   {"index_digest", record.index_digest},
                   {"bytes", record.bytes},
                   {"entries", record.entries},
                   {"created_ms", record.created_ms},
                   {"config", write_config(record.config)}});
}

Result<ImageRecord> record_from_json(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  const Error damaged{Code::kConflict, 0, "the record of an image is damaged",
                      "import the image again"};
  if (!object.is_object()) {
    return damaged;
  }
  ImageRecord record;
  record.name = text_of(object, "name");
  record.digest = text_of(object, "digest");
  record.layers = words_of(object, "layers");
  record.root = text_of(object, "root");
  record.source = text_of(object, "source");
  record.index_digest = text_of(object, "index_digest");
  record.bytes = static_cast<std::uint64_t>(number_of(object, "bytes"));
  record.entries = static_cast<std::uint64_t>(number_of(object, "entries"));
  record.created_ms = number_of(object, "created_ms");
  record.config = read_config(object.value("config", Json::object()));
  bool good = is_image_name(record.name) && is_sha256(record.digest) && is_root_name(record.root);
  for (const std::string& layer : record.layers) {
    good = good && is_sha256(layer);
  }
  return good ? Result<ImageRecord>(std::move(record)) : damaged;
}

ImageConfig config_from_json(std::string_view text) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return {};
  }
  return read_config(object.value("config", Json::object()));
}

std::string config_to_json(const ImageConfig& config) { return dump(write_config(config)); }

bool is_image_name(std::string_view name) {
  return name != "host" && policy::check_image_name({"image", name}).ok();
}

std::string record_file(std::string_view name) {
  std::string file;
  for (const char c : name) {
    file += c == '/' ? std::string("%2F") : std::string(1, c);
  }
  return file + ".json";
}

}  // namespace carrel::storage
