#pragma once

#include <string>
#include <string_view>

namespace carrel::cli {

// The manual, carrel(1), as roff made from the tables of options.h and policy::settings().
std::string man_page(std::string_view version);

}  // namespace carrel::cli
