#include "cli/terminal_filter.h"

#include <cstddef>

namespace carrel::cli {

namespace {

constexpr std::size_t kLongestColour = 64;

void show(std::string& out, unsigned char byte) {
  out += '^';
  out += byte == 0x7f ? '?' : static_cast<char>(byte + 0x40);
}

enum class Match { kNo, kYes, kMore };

// Whether the data begins with ESC [ digits and semicolons and an "m".
Match match_colour(std::string_view data, std::size_t& size) {
  if (data.size() < 2) {
    return Match::kMore;
  }
  if (data[1] != '[') {
    return Match::kNo;
  }
  for (size = 2; size < data.size() && size < kLongestColour; ++size) {
    const char c = data[size];
    if (c == 'm') {
      ++size;
      return Match::kYes;
    }
    if ((c < '0' || c > '9') && c != ';' && c != ':') {
      return Match::kNo;
    }
  }
  return size < kLongestColour ? Match::kMore : Match::kNo;
}

// C1 controls and the Arabic letter mark are two bytes in UTF-8; the other bidirectional controls
// are three.
Match match_hidden(std::string_view data, std::size_t& size) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(data[i]); };
  if (byte(0) == 0xc2 || byte(0) == 0xd8) {
    if (data.size() < 2) {
      return Match::kMore;
    }
    size = 2;
    const bool hidden = byte(0) == 0xc2 ? byte(1) >= 0x80 && byte(1) <= 0x9f : byte(1) == 0x9c;
    return hidden ? Match::kYes : Match::kNo;
  }
  if (byte(0) == 0xe2) {
    if (data.size() < 3) {
      return Match::kMore;
    }
    size = 3;
    const bool marks = byte(1) == 0x80 &&
                       (byte(2) == 0x8e || byte(2) == 0x8f || (byte(2) >= 0xaa && byte(2) <= 0xae));
    const bool isolates = byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9;
    return marks || isolates ? Match::kYes : Match::kNo;
  }
  return Match::kNo;
}

}  // namespace

std::size_t hidden_character(std::string_view text) {
  std::size_t size = 0;
  return !text.empty() && match_hidden(text, size) == Match::kYes ? size : 0;
}

void TerminalFilter::take(std::string& out, std::string_view& data) {
  const unsigned char byte = static_cast<unsigned char>(data.front());
  std::size_t size = 0;
  if (byte == 0x1b) {
    switch (match_colour(data, size)) {
      case Match::kYes:
        out += data.substr(0, size);
        data.remove_prefix(size);
        return;
      case Match::kMore:
        pending_ = data;
        data = {};
        return;
      case Match::kNo:
        break;
    }
  }
  if (byte == '\n' || byte == '\t' || byte == '\r') {
    out += static_cast<char>(byte);
  } else if (byte < 0x20 || byte == 0x7f) {
    show(out, byte);
  } else {
    switch (match_hidden(data, size)) {
      case Match::kYes:
        out += "\xef\xbf\xbd";
        data.remove_prefix(size);
        return;
      case Match::kMore:
        pending_ = data;
        data = {};
        return;
      case Match::kNo:
        out += static_cast<char>(byte);
        break;
    }
  }
  data.remove_prefix(1);
}

std::string TerminalFilter::filter(std::string_view data) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += data;
    pending_.clear();
    data = joined;
  }
  std::string out;
  out.reserve(data.size());
  while (!data.empty()) {
    take(out, data);
  }
  return out;
}

std::string TerminalFilter::finish() {
  std::string out;
  for (char c : pending_) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      show(out, byte);
    } else {
      out += c;
    }
  }
  pending_.clear();
  return out;
}

}  // namespace carrel::cli
