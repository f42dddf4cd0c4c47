// Messages of MCP peers: any bytes are read or refused; what is read is bounded, and written again
// it is the same; what tools and results are made of it is bounded, too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "mcp/eras.h"
#include "mcp/message.h"
#include "mcp/names.h"
#include "mcp/tools.h"

namespace {

using namespace carrel::mcp;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void look_at(const Json& value) {
  if (const auto tool = read_tool(value); tool.ok()) {
    require(!tool.value().name.empty() && tool.value().input_schema.is_object());
    const std::string name = exposed_name("server", tool.value().name);
    require(name.size() <= kLongestToolName && name.starts_with("mcp_server"));
    require(name.find_first_of(" .\r\n") == std::string::npos);
    for (const auto& [header, text] : header_values(tool.value().header_parameters, value)) {
      require(header.find_first_of(" :\r\n") == std::string::npos);
      require(header_value(text).find_first_of("\r\n") == std::string::npos);
    }
  }
  if (const auto result = read_tool_result(value); result.ok()) {
    (void)Json(result.value().text()).dump();
  }
  if (const auto about = read_discovery(value); about.has_value()) {
    require(about->name.find('\n') == std::string::npos);
    (void)Json(about->instructions).dump();
  }
  (void)read_initialized(value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = parse_message({reinterpret_cast<const char*>(data), size});
  if (!message.ok()) {
    require(!message.error().message.empty());
    return 0;
  }
  const Message& read = message.value();
  if (const auto* text = std::get_if<std::string>(&read.id)) {
    require(text->size() <= kLongestId);
  }
  require(read.params.is_object() && read.result.is_object());
  require(read.method.size() <= kLongestMethod);
  const std::string written = to_text(read);
  require(written.find('\n') == std::string::npos);
  if (written.size() <= kLargestMessage) {
    const auto again = parse_message(written);
    require(again.ok() && again.value().kind == read.kind && again.value().id == read.id);
    require(to_text(again.value()) == written);
  }
  require(describe(read.error).find('\n') == std::string::npos);
  (void)read_supported(read.error);
  if (read.kind == Message::Kind::kResult) {
    look_at(read.result);
  }
  return 0;
}
