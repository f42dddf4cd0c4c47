#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/unique_fd.h"

// What tests of images need: a directory that goes away, and archives written byte by byte, so that
// they can hold what no tool would write.
namespace carrel::storage {

class Scratch {
 public:
  Scratch() {
    std::string name = "/tmp/carrel-images-XXXXXX";
    path_ = ::mkdtemp(name.data());
    ::umask(022);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // A directory below, made and opened.
  UniqueFd directory(const std::string& name) const {
    std::filesystem::create_directories(path_ + "/" + name);
    return UniqueFd(::open((path_ + "/" + name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] bool exists(const std::string& name) const {
    struct stat info{};
    return ::lstat((path_ + "/" + name).c_str(), &info) == 0;
  }

 private:
  std::string path_;
};

// A tar, entry by entry.
class Tar {
 public:
  struct Entry {
    char type = '0';
    unsigned mode = 0644;
    std::string target = {};        // of a link
    std::string claimed_size = {};  // octal, in the place of the real one
  };

  Tar& add(const std::string& name, const std::string& data, const Entry& entry) {
    std::string head(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) {
      head.replace(at, text.size(), text);
    };
    put(0, name.substr(0, 100));
    put(100, octal(entry.mode, 7));
    put(108, octal(0, 7));
    put(116, octal(0, 7));
    put(124, entry.claimed_size.empty() ? octal(data.size(), 11) : entry.claimed_size);
    put(136, octal(1'000'000'000, 11));
    put(148, "        ");
    head[156] = entry.type;
    put(157, entry.target.substr(0, 100));
    put(257, std::string("ustar\0"
                         "00",
                         8));
    put(329, octal(1, 7));
    put(337, octal(3, 7));
    unsigned sum = 0;
    for (const char c : head) {
      sum += static_cast<unsigned char>(c);
    }
    put(148, octal(sum, 6) + std::string("\0 ", 2));
    bytes_ += head + data + std::string((512 - data.size() % 512) % 512, '\0');
    return *this;
  }
  Tar& file(const std::string& name, const std::string& data, unsigned mode = 0644) {
    return add(name, data, {.mode = mode});
  }
  Tar& directory(const std::string& name, unsigned mode = 0755) {
    return add(name, "", {.type = '5', .mode = mode});
  }
  Tar& link(const std::string& name, const std::string& target) {
    return add(name, "", {.type = '2', .mode = 0777, .target = target});
  }
  Tar& hard_link(const std::string& name, const std::string& target) {
    return add(name, "", {.type = '1', .target = target});
  }
  // A pax record for the next entry.
  Tar& pax(const std::string& key, const std::string& value) {
    std::size_t size = key.size() + value.size() + 3;
    while (std::to_string(size).size() + key.size() + value.size() + 3 != size) {
      size = std::to_string(size).size() + key.size() + value.size() + 3;
    }
    return add("pax", std::to_string(size) + " " + key + "=" + value + "\n", {.type = 'x'});
  }
  [[nodiscard]] std::string bytes() const { return bytes_ + std::string(1024, '\0'); }

 private:
  static std::string octal(std::uint64_t value, int digits) {
    std::string text(32, '\0');
    text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%0*lo", digits,
                                                       static_cast<unsigned long>(value))));
    return text;
  }

  std::string bytes_;
};

}  // namespace carrel::storage
