#include "egress/scrubber.h"

#include <algorithm>
#include <utility>

namespace carrel::egress {

namespace {

// How many bytes at the end of the text the secret begins with, without being all of it.
std::size_t begun(std::string_view text, std::string_view secret) {
  for (std::size_t size = std::min(text.size(), secret.size() - 1); size > 0; --size) {
    if (text.ends_with(secret.substr(0, size))) {
      return size;
    }
  }
  return 0;
}

}  // namespace

void Scrubber::add(const std::string& secret) {
  if (!secret.empty() && std::find(secrets_.begin(), secrets_.end(), secret) == secrets_.end()) {
    secrets_.push_back(secret);
  }
}

std::string Scrubber::feed(std::string_view piece) {
  std::string text = std::exchange(kept_, {}).append(piece);
  std::string shown = std::exchange(shown_, {}).append(piece);
  std::size_t keep = 0;
  for (const std::string& secret : secrets_) {
    for (std::size_t at = text.find(secret); at != std::string::npos;
         at = text.find(secret, at + 1)) {
      std::fill_n(shown.begin() + static_cast<std::ptrdiff_t>(at), secret.size(), '*');
    }
    keep = std::max(keep, begun(text, secret));
  }
  kept_ = text.substr(text.size() - keep);
  shown_ = shown.substr(shown.size() - keep);
  shown.resize(shown.size() - keep);
  return shown;
}

std::string Scrubber::finish() {
  kept_.clear();
  return std::exchange(shown_, {});
}

}  // namespace carrel::egress
