// Any words as a command line, separated by NUL bytes as the kernel has them: Arguments that can be
// applied, or one short line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "policy/given.h"

namespace {

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void require_short_line(const carrel::Error& error) {
  const std::string text = error.to_string();
  require(text.size() < 600);
  require(carrel::policy::shape_of(text) == carrel::policy::TextShape::kPlain);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace cli = carrel::cli;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> words;
  while (!text.empty()) {
    words.push_back(text.substr(0, text.find('\0')));
    text.remove_prefix(std::min(words.back().size() + 1, text.size()));
  }
  const auto command = cli::select_command(words);
  if (!command.ok()) {
    require_short_line(command.error());
    return 0;
  }
  const auto arguments = cli::parse_arguments(*command.value(), std::span(words).subspan(1));
  if (!arguments.ok()) {
    require_short_line(arguments.error());
    const int status = cli::status_of(*command.value(), arguments.error());
    require(status == cli::kCarrelFailed || status == cli::kUsageFailed);
    return 0;
  }
  carrel::policy::Spec spec;
  require(cli::apply_settings(arguments.value(), spec).ok());
  require(arguments.value().command_line.size() + arguments.value().operands.size() < words.size());
  return 0;
}
