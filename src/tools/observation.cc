#include "tools/observation.h"

#include <vector>

#include "base/utf8.h"

namespace carrel::tools {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// The most of `text`, up to that many bytes, that ends between two characters.
std::string_view head_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) {
    return text;
  }
  while (bytes > 0 && continues(text[bytes])) {
    --bytes;
  }
  return text.substr(0, bytes);
}

std::string cut_line(std::string_view line, bool& cut) {
  if (line.size() <= kLongestLine) {
    return std::string(line);
  }
  cut = true;
  const std::string_view kept = head_of(line, kLongestLine);
  return std::string(kept) + "... [" + std::to_string(line.size() - kept.size()) +
         " more bytes in this line]";
}

}  // namespace

Observation cut_output(std::string_view bytes) {
  const std::string text = replace_invalid_utf8(bytes);
  std::vector<std::string_view> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  const bool ends_line = text.empty() || text.back() == '\n';
  Observation seen;
  const std::size_t half = kMostLines / 2;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines.size() > kMostLines && i == half) {
      const std::size_t left_out = lines.size() - kMostLines;
      seen.text += "[... " + std::to_string(left_out) + " of " + std::to_string(lines.size()) +
                   " lines are left out here ...]\n";
      seen.cut = true;
      i += left_out;
    }
    seen.text += cut_line(lines[i], seen.cut);
    if (i + 1 < lines.size() || ends_line) {
      seen.text += '\n';
    }
  }
  return seen;
}

Observation cut_observation(std::string_view bytes, std::size_t most) {
  const std::string text = replace_invalid_utf8(bytes);
  std::size_t characters = 0;
  for (const char c : text) {
    characters += continues(c) ? 0U : 1U;
  }
  if (characters <= most) {
    return {text, false};
  }
  const std::size_t head = most * 2 / 3;
  const std::size_t tail = most - head;
  std::size_t head_end = text.size();
  std::size_t tail_begin = text.size();
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (continues(text[i])) {
      continue;
    }
    if (seen == head) {
      head_end = i;
    }
    if (seen == characters - tail) {
      tail_begin = i;
    }
    ++seen;
  }
  return {text.substr(0, head_end) + "\n[... " + std::to_string(characters - most) +
              " characters are left out here ...]\n" + text.substr(tail_begin),
          true};
}

}  // namespace carrel::tools
