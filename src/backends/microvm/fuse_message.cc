#include "backends/microvm/fuse_message.h"

namespace carrel::microvm {

std::size_t fuse_size(const fuse_in_header& header) {
  return header.len >= sizeof header && header.len <= kLargestFuse ? header.len : 0;
}

bool parse_fuse(std::string_view message, FuseRequest& request) {
  fuse_in_header header{};
  FuseBody body(message);
  if (!body.take(header) || fuse_size(header) != message.size()) {
    return false;
  }
  request = {header.opcode, header.unique, header.nodeid, body.rest()};
  return true;
}

bool is_plain_name(std::string_view name) {
  constexpr std::size_t kLongest = 255;
  return !name.empty() && name.size() <= kLongest && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool FuseBody::take_text(std::string& text) {
  const std::size_t end = rest_.find('\0');
  if (end == std::string_view::npos) {
    return false;
  }
  text = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  return true;
}

bool FuseBody::take_name(std::string& name) { return take_text(name) && is_plain_name(name); }

char* FuseReply::extend(std::size_t size) {
  const std::size_t before = bytes_.size();
  bytes_.resize(before + size);
  return bytes_.data() + before;
}

std::string FuseReply::encode(std::uint64_t unique) const {
  fuse_out_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + (error_ == 0 ? bytes_.size() : 0));
  header.error = -error_;
  header.unique = unique;
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  if (error_ == 0) {
    message += bytes_;
  }
  return message;
}

}  // namespace carrel::microvm
