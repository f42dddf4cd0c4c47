#include <utility>

#include "backends/microvm/hall.h"

namespace carrel::microvm {

namespace {

void put_list(std::string& out, const std::vector<std::string>& list) {
  for (const std::string& text : list) {
    out.append(text.c_str(), text.size() + 1);
  }
  out.append("\1", 2);  // no path and no argument is that
}

bool take(std::string_view& rest, std::string& text) {
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos) {
    return false;
  }
  text = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

bool take_list(std::string_view& rest, std::vector<std::string>& list) {
  for (std::string text; take(rest, text);) {
    if (text == "\1") {
      return true;
    }
    list.push_back(std::move(text));
  }
  return false;
}

}  // namespace

std::string encode_hall(const HallRequest& request) {
  std::string text;
  for (const std::string* part :
       {&request.stage, &request.terms, &request.listens, &request.network, &request.boot_ms,
        &request.probes, &request.snapshot, &request.files, &request.settings}) {
    text.append(part->c_str(), part->size() + 1);
  }
  for (const std::vector<std::string>* list :
       {&request.vmm, &request.needed, &request.shown, &request.folders, &request.trees,
        &request.sources, &request.hidden, &request.spare}) {
    put_list(text, *list);
  }
  return text;
}

Result<HallRequest> decode_hall(std::string_view text) {
  HallRequest request;
  bool whole = true;
  for (std::string* part :
       {&request.stage, &request.terms, &request.listens, &request.network, &request.boot_ms,
        &request.probes, &request.snapshot, &request.files, &request.settings}) {
    whole = whole && take(text, *part);
  }
  for (std::vector<std::string>* list :
       {&request.vmm, &request.needed, &request.shown, &request.folders, &request.trees,
        &request.sources, &request.hidden, &request.spare}) {
    whole = whole && take_list(text, *list);
  }
  if (!whole || !text.empty() || request.vmm.empty() ||
      request.sources.size() != request.trees.size()) {
    return Error{Code::kInvalid, 0, "the request for a virtual machine is malformed", {}};
  }
  return request;
}

}  // namespace carrel::microvm
