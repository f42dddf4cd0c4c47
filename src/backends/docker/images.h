#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

// Images that an engine has, or gets from a registry, on their way to Carrel's own store.
namespace carrel::docker {

// How a person names one: "docker:NAME".
inline constexpr std::string_view kImageScheme = "docker:";

// What an engine does, in its words, and how far it is; `whole` is zero where nobody knows.
struct ImageProgress {
  std::string step;
  std::uint64_t done = 0;
  std::uint64_t whole = 0;
};
using ImageListener = std::function<void(const ImageProgress&)>;

// Has the engine get the image from its registry. kNotFound, or what it said.
Status pull(const std::string& address, const std::string& name, const ImageListener& listener);

// Writes what `docker save` would to the file. kNotFound: the engine has no such image.
Status save(const std::string& address, const std::string& name, int file,
            const ImageListener& listener);

// Takes lines of an engine's progress as they come, and tells the last error among them.
class PullNews {
 public:
  explicit PullNews(const ImageListener& listener) : listener_(listener) {}
  Status take(std::string_view bytes);
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  void line(std::string_view text);

  const ImageListener& listener_;
  std::string rest_;
  std::string error_;
};

}  // namespace carrel::docker
