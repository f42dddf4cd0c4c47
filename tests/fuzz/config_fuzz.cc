// Any bytes as a carrel.toml and as a file of tasks: a Config whose Specs are within bounds, or one
// short line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/config.h"
#include "policy/given.h"
#include "policy/tasks.h"
#include "policy/validate.h"

namespace {

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void check_line(const std::string& line, std::string_view begin) {
  require(line.size() < 800);
  require(line.starts_with(begin));
  require(line.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace policy = carrel::policy;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto tasks = policy::parse_tasks(text, "plan.toml"); !tasks.ok()) {
    check_line(tasks.error().to_string(), "plan.toml:");
  }
  const auto config = policy::parse_config(text, "carrel.toml");
  if (!config.ok()) {
    check_line(config.error().to_string(), "carrel.toml:");
    return 0;
  }
  constexpr policy::HostFacts kEndless{.memory_bytes = UINT64_MAX, .cpus = UINT32_MAX};
  for (const auto operation :
       {policy::Operation::kRun, policy::Operation::kCode, policy::Operation::kCreate}) {
    const auto spec = policy::spec_from(config.value(), operation);
    require(spec.ok());
    require(policy::validate(spec.value(), kEndless).ok());
  }
  return 0;
}
