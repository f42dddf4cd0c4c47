#pragma once

#include <string>
#include <vector>

namespace carrel::cli {

// Rows of text with the columns lined up, two spaces apart; the last column is not padded. Control
// bytes are escaped.
std::string table(const std::vector<std::vector<std::string>>& rows);

// "3m", "2h", "5d": how long ago that was.
std::string age(long long milliseconds);

}  // namespace carrel::cli
