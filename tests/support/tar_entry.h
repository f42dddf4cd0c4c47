#pragma once

#include <cstdio>
#include <string>

namespace carrel::test {

// One entry of a tar, by hand: no tool writes these.
inline std::string tar_entry(char type, const std::string& name, const std::string& data = "",
                             const std::string& target = "", unsigned mode = 0644) {
  std::string block(512, '\0');
  const auto put = [&block](std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  const auto octal = [](unsigned long value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*lo", digits, value);
    return std::string(text);
  };
  put(0, name.substr(0, 100));
  put(100, octal(mode, 7));
  put(124, octal(data.size(), 11));
  put(136, octal(0, 11));
  put(148, "        ");
  block[156] = type;
  put(157, target.substr(0, 100));
  put(257, "ustar");
  put(263, "00");
  unsigned long sum = 0;
  for (const char c : block) {
    sum += static_cast<unsigned char>(c);
  }
  put(148, octal(sum, 6));
  block[154] = '\0';
  return block + data + std::string((512 - data.size() % 512) % 512, '\0');
}

}  // namespace carrel::test
