#include "mcp/tools.h"

#include <algorithm>
#include <set>

#include "base/utf8.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

constexpr std::size_t kMostPages = 64;
constexpr std::size_t kLongestName = 256;
constexpr std::size_t kLongestDescription = 16U << 10;
constexpr std::size_t kLargestSchema = 256U << 10;
constexpr std::size_t kMostContent = 1024;
constexpr auto kReplace = Json::error_handler_t::replace;

Error bad(std::string why) { return Error{Code::kInvalid, 0, std::move(why), {}}; }

std::string text_in(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, kReplace); }

bool is_base64(std::string_view text) {
  const std::size_t end = text.find_last_not_of('=');
  const std::size_t length = end == std::string_view::npos ? 0 : end + 1;
  return text.size() % 4 == 0 && text.size() - length <= 2 &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '/';
         });
}

Result<Content> read_bytes(const Json& object, std::string_view name, Content content) {
  content.data = text_in(object, name);
  content.type = policy::printable(text_in(object, "mimeType"), 100);
  return is_base64(content.data) ? Result<Content>(std::move(content))
                                 : bad("the tool's result has data that are not base64");
}

Result<Content> read_resource(const Json& value) {
  const auto resource = value.find("resource");
  if (resource == value.end() || !resource->is_object()) {
    return bad("the tool's result has a resource that is none");
  }
  Content content{.kind = Content::Kind::kResource,
                  .text = text_in(*resource, "text"),
                  .data = {},
                  .type = policy::printable(text_in(*resource, "mimeType"), 100),
                  .uri = policy::printable(text_in(*resource, "uri"), 2000)};
  return resource->contains("blob") ? read_bytes(*resource, "blob", std::move(content))
                                    : Result<Content>(std::move(content));
}

Result<Content> read_content(const Json& value) {
  if (!value.is_object()) {
    return bad("the tool's result has content that is no object");
  }
  const std::string type = text_in(value, "type");
  if (type == "text") {
    return Content{Content::Kind::kText, text_in(value, "text"), {}, {}, {}};
  }
  if (type == "image") {
    return read_bytes(value, "data", {Content::Kind::kImage, {}, {}, {}, {}});
  }
  if (type == "audio") {
    return read_bytes(value, "data", {Content::Kind::kAudio, {}, {}, {}, {}});
  }
  if (type == "resource") {
    return read_resource(value);
  }
  if (type == "resource_link") {
    return Content{Content::Kind::kLink,
                   policy::printable(text_in(value, "name")),
                   {},
                   {},
                   policy::printable(text_in(value, "uri"), 2000)};
  }
  return Content{Content::Kind::kText,
                 "(content of the type " + policy::quote(type) + " is left out)",
                 {},
                 {},
                 {}};
}

}  // namespace

Result<Tool> read_tool(const Json& value) {
  if (!value.is_object()) {
    return bad("a tool is no object");
  }
  Tool tool;
  tool.name = text_in(value, "name");
  if (tool.name.empty() || tool.name.size() > kLongestName) {
    return bad("a tool has no name, or one of more than 256 bytes");
  }
  tool.description = text_in(value, "description");
  if (tool.description.size() > kLongestDescription) {
    tool.description = replace_invalid_utf8(tool.description.substr(0, kLongestDescription));
  }
  const auto schema = value.find("inputSchema");
  if (schema == value.end() || !schema->is_object() || dump(*schema).size() > kLargestSchema) {
    return bad("the tool " + policy::quote(tool.name) +
               " has no schema of its parameters, or one of more than 256 KiB");
  }
  tool.input_schema = *schema;
  auto headers = header_parameters(tool.input_schema);
  if (!headers.ok()) {
    return bad("the tool " + policy::quote(tool.name) + ": " + headers.error().message);
  }
  tool.header_parameters = std::move(headers.value());
  if (const auto output = value.find("outputSchema");
      output != value.end() && output->is_object() && dump(*output).size() <= kLargestSchema) {
    tool.output_schema = *output;
  }
  if (const auto hints = value.find("annotations"); hints != value.end() && hints->is_object()) {
    tool.annotations = *hints;
  }
  return tool;
}

Result<ToolList> list_tools(Session& session, const Patience& patience) {
  ToolList list;
  std::set<std::string> cursors;
  std::string cursor;
  for (std::size_t page = 0; page < kMostPages; ++page) {
    Question question{.method = "tools/list"};
    if (!cursor.empty()) {
      question.params["cursor"] = cursor;
    }
    CARREL_ASSIGN(const Json result, session.ask(question, patience));
    const auto tools = result.find("tools");
    if (tools == result.end() || !tools->is_array()) {
      return Error{Code::kDenied, 0, "the MCP server's list of tools has no tools", {}};
    }
    for (const Json& one : *tools) {
      if (list.tools.size() + list.notices.size() >= kMostTools) {
        list.notices.push_back("it has more than " + std::to_string(kMostTools) +
                               " tools; the others are left out");
        return list;
      }
      auto tool = read_tool(one);
      if (tool.ok()) {
        list.tools.push_back(std::move(tool.value()));
      } else {
        list.notices.push_back(tool.error().message);
      }
    }
    cursor = text_in(result, "nextCursor");
    if (cursor.empty()) {
      return list;
    }
    if (!cursors.insert(cursor).second) {
      break;
    }
  }
  list.notices.emplace_back("its list of tools does not end; what came so far is taken");
  return list;
}

Result<ToolResult> read_tool_result(const Json& value) {
  ToolResult result;
  const auto content = value.find("content");
  if (content != value.end()) {
    if (!content->is_array() || content->size() > kMostContent) {
      return bad("the content of the tool's result is no list, or too long");
    }
    for (const Json& one : *content) {
      CARREL_ASSIGN(Content piece, read_content(one));
      result.content.push_back(std::move(piece));
    }
  }
  if (const auto structured = value.find("structuredContent"); structured != value.end()) {
    result.structured = *structured;
  }
  if (content == value.end() && result.structured.is_null()) {
    return bad("the tool's result has no content");
  }
  const auto failed = value.find("isError");
  result.outcome = failed != value.end() && *failed == true ? ToolResult::Outcome::kFailed
                                                            : ToolResult::Outcome::kDone;
  return result;
}

std::string ToolResult::text() const {
  std::string all;
  for (const Content& piece : content) {
    std::string_view part = piece.kind == Content::Kind::kLink ? piece.uri : piece.text;
    if (!part.empty()) {
      all += all.empty() ? "" : "\n";
      all += part;
    }
  }
  return content.empty() && !structured.is_null() ? dump(structured) : all;
}

Result<ToolResult> call_tool(Session& session, const ToolCall& call, const Patience& patience) {
  if (!call.arguments.is_object()) {
    return bad("the arguments of a tool are an object");
  }
  Question question{.method = "tools/call",
                    .params = {{"name", call.tool.name}, {"arguments", call.arguments}},
                    .name = call.tool.name,
                    .parameters = header_values(call.tool.header_parameters, call.arguments),
                    .progress = call.progress};
  CARREL_ASSIGN(const Json result, session.ask(question, patience));
  return read_tool_result(result);
}

}  // namespace carrel::mcp
