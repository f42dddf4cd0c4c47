#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::storage {

// What an image asks of whoever runs it.
struct ImageConfig {
  std::vector<std::string> environment;  // NAME=VALUE
  std::string workdir;
  std::string user;
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
};

// An image that is in the store: its name, where its files are, and what they are made of.
struct ImageRecord {
  std::string name;
  std::string digest;               // 64 hex digits: of its manifest, or of its only layer
  std::vector<std::string> layers;  // 64 hex digits each, the lowest first
  std::string root;                 // its directory in roots/
  std::string source;               // of a pulled image: where it came from, in full
  std::string index_digest;         // of the index that its manifest was chosen from
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  std::int64_t created_ms = 0;
  ImageConfig config;
};

std::string record_to_json(const ImageRecord& record);
Result<ImageRecord> record_from_json(std::string_view text);

// The `config` object of an image's configuration, of which only what is above is taken.
ImageConfig config_from_json(std::string_view text);
std::string config_to_json(const ImageConfig& config);

// A name for an image: letters, digits and "._-", in parts that are joined by '/' or ':' and begin
// with a letter or digit; at most 200 bytes. Not `host`, which is taken.
bool is_image_name(std::string_view name);

// The file of an image of that name: '/' is "%2F", and it ends in ".json".
std::string record_file(std::string_view name);

}  // namespace carrel::storage
