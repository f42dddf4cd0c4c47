#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "protocol/files.h"
#include "sandbox/files.h"

// Files of a sandbox as JSON, with the same names everywhere.
namespace carrel::sandbox {

// Bytes as a JSON string; where they are not UTF-8, as NAME_b64 as well.
void add_bytes(nlohmann::ordered_json& object, const std::string& name, std::string_view bytes);
nlohmann::ordered_json to_json(const FileInfo& info);
nlohmann::ordered_json to_json(const protocol::FileChange& change);
std::string_view kind_name(protocol::FileKind kind);
// "create", "write", "remove", "rename", "lost"
std::string_view event_name(protocol::FileEvent event);

}  // namespace carrel::sandbox
