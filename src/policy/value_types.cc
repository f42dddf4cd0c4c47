#include "policy/value_types.h"

#include <array>
#include <charconv>

namespace carrel::policy {

std::string_view wanted_types(ValueKind kind, Notation notation) {
  const bool toml = notation == Notation::kToml;
  switch (kind) {
    case ValueKind::kSize:
      return "a string like \"512m\" or a whole number of bytes";
    case ValueKind::kDuration:
      return "a number of seconds or a string like \"2m\"";
    case ValueKind::kCores:
      return "a number";
    case ValueKind::kCount:
      return "a whole number";
    case ValueKind::kFlag:
      return "true or false";
    case ValueKind::kWords:
      return "an array of strings";
    case ValueKind::kVariables:
      return toml ? "a table of strings or an array of \"NAME=VALUE\""
                  : "an object of strings or an array of \"NAME=VALUE\"";
    case ValueKind::kMounts:
      return toml ? "an array of \"SRC:DST[:rw]\" or of tables with source, target and readonly"
                  : "an array of \"SRC:DST[:rw]\" or of objects with source, target and readonly";
    case ValueKind::kCredentials:
      return "an array of \"RULE=HEADER: VALUE\"";
    case ValueKind::kServices:
      return toml ? "an array of \"NAME=COMMAND\" or a table of tables with command and ready"
                  : "an array of \"NAME=COMMAND\" or an object of objects with command and ready";
    case ValueKind::kNetwork:
      return "a string or an array of rules";
    case ValueKind::kText:
      break;
  }
  return "a string";
}

ScalarTypes scalar_types(ValueKind kind) {
  ScalarTypes types;
  types.string = kind == ValueKind::kText || kind == ValueKind::kSize ||
                 kind == ValueKind::kDuration || kind == ValueKind::kWords ||
                 kind == ValueKind::kNetwork;
  types.whole = kind == ValueKind::kSize || kind == ValueKind::kDuration ||
                kind == ValueKind::kCores || kind == ValueKind::kCount;
  types.fraction = kind == ValueKind::kDuration || kind == ValueKind::kCores;
  types.flag = kind == ValueKind::kFlag;
  return types;
}

std::string number_text(double number) {
  std::array<char, 400> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::fixed);
  return {buffer.data(), end.ptr};
}

}  // namespace carrel::policy
