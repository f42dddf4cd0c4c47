#pragma once

#include <string>
#include <string_view>

#include "policy/settings.h"

namespace carrel::policy {

// What a value of a setting may be where values have types: in carrel.toml and in JSON.

enum class Notation { kToml, kJson };

// "a whole number": what the kind takes, for an error.
std::string_view wanted_types(ValueKind kind, Notation notation);

// The types of single values that it takes.
struct ScalarTypes {
  bool string = false;
  bool whole = false;
  bool fraction = false;
  bool flag = false;
};
ScalarTypes scalar_types(ValueKind kind);

// A number as the setters read it, without an exponent.
std::string number_text(double number);

}  // namespace carrel::policy
