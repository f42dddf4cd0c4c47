#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "mcp/message.h"

namespace carrel::mcp {

// The protocol has two eras. In the modern one (2026-07-28) each request says who asks and in which
// version, and there is no session; in the legacy one (2025-11-25 and before) a connection begins
// with `initialize`.
enum class Era { kModern, kLegacy };

// Which of them a client speaks. Auto asks in the modern way first.
enum class Protocol { kAuto, kModern, kLegacy };

inline constexpr std::string_view kModernVersion = "2026-07-28";
inline constexpr std::string_view kNewestLegacyVersion = "2025-11-25";
// Newest first.
const std::vector<std::string_view>& legacy_versions();

// What a server says about itself; hostile, and bounded.
struct About {
  std::string name;
  std::string version;
  std::string instructions;
  bool has_tools = false;
};

// Adds to the params of a modern request what each of them has to say.
Json with_modern_meta(Json params);

// What a modern server answers to `server/discover`: nothing, if it is no answer of one that speaks
// this version.
std::optional<About> read_discovery(const Json& result);
// The versions that a server names when it refuses one (-32022); nothing: it names none.
std::optional<std::vector<std::string>> read_supported(const RpcError& error);

Json initialize_params();

struct Initialized {
  std::string version;
  About about;
};
Result<Initialized> read_initialized(const Json& result);

// A text as the value of a header, encoded where it would not come through as it is.
std::string header_value(std::string_view text);

}  // namespace carrel::mcp
