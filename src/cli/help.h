#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cli/options.h"

namespace carrel::cli {

// What `--help` prints: plain text, at most 80 columns, made from the tables of options.h.

std::string program_help();
std::string command_help(const Command& command);

// "carrel run [OPTIONS] [--] COMMAND [ARG...]".
std::string usage_line(const Command& command);

// The heading over a group of commands.
std::string_view group_title(CommandGroup group);

// "  label    text", the text wrapped between its column and the 80th.
std::string described(std::string_view label, std::string_view text, std::size_t column);

}  // namespace carrel::cli
