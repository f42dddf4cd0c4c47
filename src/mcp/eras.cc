#include "mcp/eras.h"

#include <algorithm>

#include "base/base64.h"
#include "base/utf8.h"
#include "base/version.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

constexpr std::string_view kMetaVersion = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kMetaCapabilities = "io.modelcontextprotocol/clientCapabilities";
constexpr std::string_view kMetaClient = "io.modelcontextprotocol/clientInfo";
constexpr std::string_view kMetaServer = "io.modelcontextprotocol/serverInfo";

constexpr std::size_t kLongestName = 200;
constexpr std::size_t kLongestInstructions = 16U << 10;
constexpr std::size_t kMostVersions = 64;

Json client_info() { return {{"name", "carrel"}, {"version", kVersion}}; }

std::string text_of(const Json& object, std::string_view name, std::size_t most) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string()
             ? policy::printable(found->get_ref<const std::string&>(), most)
             : std::string();
}

About read_about(const Json& result, const Json& info) {
  About about;
  about.name = text_of(info, "name", kLongestName);
  about.version = text_of(info, "version", kLongestName);
  const auto instructions = result.find("instructions");
  if (instructions != result.end() && instructions->is_string()) {
    about.instructions =
        replace_invalid_utf8(instructions->get<std::string>().substr(0, kLongestInstructions));
  }
  const auto capabilities = result.find("capabilities");
  about.has_tools =
      capabilities != result.end() && capabilities->is_object() && capabilities->contains("tools");
  return about;
}

std::optional<std::vector<std::string>> read_versions(const Json& list) {
  if (!list.is_array() || list.size() > kMostVersions) {
    return std::nullopt;
  }
  std::vector<std::string> versions;
  for (const Json& version : list) {
    if (!version.is_string()) {
      return std::nullopt;
    }
    versions.push_back(policy::printable(version.get_ref<const std::string&>(), 40));
  }
  return versions;
}

}  // namespace

const std::vector<std::string_view>& legacy_versions() {
  static const std::vector<std::string_view> versions = {kNewestLegacyVersion, "2025-06-18",
                                                         "2025-03-26", "2024-11-05"};
  return versions;
}

Json with_modern_meta(Json params) {
  Json& meta = params["_meta"];
  if (!meta.is_object()) {
    meta = Json::object();
  }
  meta[std::string(kMetaVersion)] = kModernVersion;
  meta[std::string(kMetaCapabilities)] = Json::object();
  meta[std::string(kMetaClient)] = client_info();
  return params;
}

std::optional<About> read_discovery(const Json& result) {
  const auto supported = result.find("supportedVersions");
  if (supported == result.end()) {
    return std::nullopt;
  }
  const auto versions = read_versions(*supported);
  if (!versions.has_value() ||
      std::find(versions->begin(), versions->end(), kModernVersion) == versions->end()) {
    return std::nullopt;
  }
  const auto meta = result.find("_meta");
  Json info;
  if (meta != result.end() && meta->is_object() && meta->contains(kMetaServer)) {
    info = (*meta)[std::string(kMetaServer)];
  }
  return read_about(result, info);
}

std::optional<std::vector<std::string>> read_supported(const RpcError& error) {
  if (error.code != kUnsupportedVersion || !error.data.is_object() ||
      !error.data.contains("supported")) {
    return std::nullopt;
  }
  return read_versions(error.data["supported"]);
}

Json initialize_params() {
  return {{"protocolVersion", kNewestLegacyVersion},
          {"capabilities", Json::object()},
          {"clientInfo", client_info()}};
}

Result<Initialized> read_initialized(const Json& result) {
  const std::string version = text_of(result, "protocolVersion", 40);
  const auto& known = legacy_versions();
  if (std::find(known.begin(), known.end(), version) == known.end()) {
    return Error{Code::kUnsupported,
                 0,
                 "it wants to speak version '" + version + "' of MCP, which this client does not",
                 {}};
  }
  const auto info = result.find("serverInfo");
  return Initialized{version, read_about(result, info != result.end() ? *info : Json())};
}

std::string header_value(std::string_view text) {
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  const bool bare = text.empty() || (text.front() != ' ' && text.back() != ' ');
  const bool looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
  return plain && bare && !looks_encoded ? std::string(text) : "=?base64?" + base64(text) + "?=";
}

}  // namespace carrel::mcp
