#include "sandbox/file_json.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/utf8.h"

namespace carrel::sandbox {

void add_bytes(nlohmann::ordered_json& object, const std::string& name, std::string_view bytes) {
  object[name] = replace_invalid_utf8(bytes);
  if (!valid_utf8(bytes)) {
    object[name + "_b64"] = base64(bytes);
  }
}

std::string_view kind_name(protocol::FileKind kind) {
  switch (kind) {
    case protocol::FileKind::kFile:
    case protocol::FileKind::kHardLink:
      return "file";
    case protocol::FileKind::kDirectory:
    case protocol::FileKind::kDirectoryEnd:
      return "directory";
    case protocol::FileKind::kLink:
      return "link";
    case protocol::FileKind::kOther:
      break;
  }
  return "other";
}

nlohmann::ordered_json to_json(const FileInfo& info) {
  nlohmann::ordered_json object;
  add_bytes(object, "path", info.path);
  object["kind"] = kind_name(info.kind);
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", info.mode);
  object["mode"] = mode.data();
  object["size"] = info.size;
  object["modified_ms"] = info.modified_ns / 1'000'000;
  if (info.kind == protocol::FileKind::kLink) {
    add_bytes(object, "target", info.target);
  }
  return object;
}

std::string_view event_name(protocol::FileEvent event) {
  switch (event) {
    case protocol::FileEvent::kCreated:
      return "create";
    case protocol::FileEvent::kWritten:
      return "write";
    case protocol::FileEvent::kRemoved:
      return "remove";
    case protocol::FileEvent::kRenamed:
      return "rename";
    case protocol::FileEvent::kLost:
      break;
  }
  return "lost";
}

nlohmann::ordered_json to_json(const protocol::FileChange& change) {
  nlohmann::ordered_json object;
  object["event"] = event_name(change.event);
  object["directory"] = change.is_directory != 0;
  add_bytes(object, "path", change.path);
  if (change.event == protocol::FileEvent::kRenamed) {
    add_bytes(object, "to", change.other);
  }
  return object;
}

}  // namespace carrel::sandbox
