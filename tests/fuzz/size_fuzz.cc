// Quantities and names: anything that is read must be in range, and what is formatted again must
// read back to the same value; every error is one short line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/given.h"
#include "policy/names.h"
#include "policy/size.h"

namespace {

using carrel::Error;
using carrel::policy::Given;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void require_short_line(const Error& error) {
  const std::string text = error.to_string();
  require(text.size() < 400);
  require(carrel::policy::shape_of(text) == carrel::policy::TextShape::kPlain);
}

template <typename Parse, typename Format>
void round_trip(const Given& given, Parse parse, Format format) {
  const auto first = parse(given);
  if (!first.ok()) {
    require_short_line(first.error());
    return;
  }
  const std::string text = format(first.value());
  const auto second = parse(Given{"again", text});
  require(second.ok() && second.value() == first.value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace policy = carrel::policy;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Given given{"--option", text};
  round_trip(given, policy::parse_size, policy::format_size);
  round_trip(given, policy::parse_duration, policy::format_duration);
  round_trip(given, policy::parse_cpus, policy::format_cpus);
  round_trip(
      given, [](const Given& g) { return policy::parse_count(g, {.least = 0, .most = 1000}); },
      [](std::uint64_t count) { return std::to_string(count); });
  round_trip(given, policy::normalize_path, [](const std::string& path) { return path; });
  for (const auto& status :
       {policy::check_name(given), policy::check_hostname(given), policy::check_user_name(given)}) {
    if (!status.ok()) {
      require_short_line(status.error());
    }
  }
  if (const auto variable = policy::parse_variable(given); variable.ok()) {
    require(variable.value().name + "=" + variable.value().value == text);
  } else {
    require_short_line(variable.error());
  }
  return 0;
}
