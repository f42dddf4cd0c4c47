#include "cli/output.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/utf8.h"
#include "cli/terminal_filter.h"

namespace carrel::cli {

void print(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text).ok()) {
    ::_exit(1);
  }
}

void print_error(std::string_view text) {
  if (!write_all(STDERR_FILENO, text).ok()) {
    ::_exit(1);
  }
}

int fail(const Context& context, const Error& error) {
  int status = status_of(*context.arguments.command, error);
  if (context.json()) {
    nlohmann::ordered_json object;
    object["error"]["code"] = code_name(error.code);
    object["error"]["message"] = replace_invalid_utf8(error.to_string());
    object["error"]["hint"] = replace_invalid_utf8(error.hint);
    object["exit_code"] = status;
    print(object.dump() + "\n");
  } else {
    print_error("carrel: " + printable(error.to_string()) + "\n");
  }
  return status;
}

std::string printable(std::string_view text) {
  const std::string valid = replace_invalid_utf8(text);
  std::string shown;
  std::size_t hidden_end = 0;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const unsigned char byte = static_cast<unsigned char>(valid[i]);
    if (i >= hidden_end) {
      hidden_end = i + hidden_character(std::string_view(valid).substr(i));
    }
    if (byte < 0x20 || byte == 0x7f || i < hidden_end) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      shown += "\\x";
      shown += kDigits[byte >> 4];
      shown += kDigits[byte & 15];
    } else {
      shown += valid[i];
    }
  }
  return shown;
}

std::string json_string(std::string_view text) {
  return nlohmann::json(replace_invalid_utf8(text)).dump();
}

}  // namespace carrel::cli
