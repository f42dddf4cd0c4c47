#include "backends/native/keeper_message.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "policy/spec_json.h"
#include "storage/box.h"

namespace carrel::native {

namespace {

using Json = nlohmann::ordered_json;

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (char c : text) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  return bytes;
}

// Paths have any bytes.
std::string text_of(const Json& bytes) {
  std::string text;
  for (const Json& byte : bytes) {
    text += static_cast<char>(byte.get<std::uint8_t>());
  }
  return text;
}

Json encode_overlay(const GivenTree::Overlay& overlay) {
  return {{"top", bytes_of(overlay.top)}, {"layers", overlay.layers}, {"upper", overlay.upper},
          {"work", overlay.work},         {"place", overlay.place},   {"mount", overlay.mount}};
}

GivenTree::Overlay decode_overlay(const Json& object) {
  return {text_of(object.at("top")),
          object.at("layers").get<std::vector<std::string>>(),
          object.at("upper").get<std::string>(),
          object.at("work").get<std::string>(),
          object.at("place").get<std::string>(),
          object.at("mount").get<std::string>()};
}

Json encode_tree(const GivenTree& tree) {
  Json hidden = Json::array();
  for (const GivenTree::Hidden& one : tree.hidden) {
    hidden.push_back({{"path", bytes_of(one.path)},
                      {"folder", one.kind == GivenTree::Kind::kFolder},
                      {"why", one.why}});
  }
  return {{"path", bytes_of(tree.path)},
          {"target", tree.target},
          {"folder", tree.kind == GivenTree::Kind::kFolder},
          {"writable", tree.mode == policy::MountMode::kReadWrite},
          {"user", tree.owner.user},
          {"group", tree.owner.group},
          {"nowhere", tree.standing == GivenTree::Standing::kNowhere},
          {"own_bytes", tree.own_bytes},
          {"overlay", tree.overlay.has_value() ? encode_overlay(*tree.overlay) : Json()},
          {"hidden", hidden}};
}

GivenTree decode_tree(const Json& object, UniqueFd source) {
  const auto kind_of = [](const Json& one) {
    return one.at("folder").get<bool>() ? GivenTree::Kind::kFolder : GivenTree::Kind::kFile;
  };
  GivenTree tree;
  tree.source = std::move(source);
  tree.path = text_of(object.at("path"));
  tree.target = object.at("target").get<std::string>();
  tree.kind = kind_of(object);
  tree.mode = object.at("writable").get<bool>() ? policy::MountMode::kReadWrite
                                                : policy::MountMode::kReadOnly;
  tree.owner = {object.at("user").get<std::uint32_t>(), object.at("group").get<std::uint32_t>()};
  tree.standing = object.at("nowhere").get<bool>() ? GivenTree::Standing::kNowhere
                                                   : GivenTree::Standing::kInTree;
  tree.own_bytes = object.at("own_bytes").get<std::uint64_t>();
  for (const Json& one : object.at("hidden")) {
    tree.hidden.push_back(
        {text_of(one.at("path")), kind_of(one), one.at("why").get<std::string>()});
  }
  if (const Json& overlay = object.at("overlay"); !overlay.is_null()) {
    tree.overlay = decode_overlay(overlay);
  }
  return tree;
}

}  // namespace

std::string encode_create(const CreateRequest& request) {
  Json object;
  object["id"] = request.id;
  object["name"] = request.name;
  object["stopped"] = request.origin == CreateRequest::Origin::kStopped;
  object["warm"] = request.from == CreateRequest::From::kWarm;
  object["lease_ms"] = request.lease_ms;
  object["spec"] = policy::spec_to_json(request.spec, policy::Values::kIncluded);
  object["trees"] = Json::array();
  for (const GivenTree& tree : request.trees) {
    object["trees"].push_back(encode_tree(tree));
  }
  return object.dump();
}

Result<CreateRequest> decode_create(const std::string& text, std::vector<UniqueFd> descriptors) {
  try {
    Json object = Json::parse(text);
    CreateRequest request;
    request.id = object.at("id").get<std::string>();
    if (!storage::is_id(request.id)) {
      return Error{Code::kInvalid, 0, "the request to the keeper has no id", {}};
    }
    request.name = object.at("name").get<std::string>();
    request.origin = object.at("stopped").get<bool>() ? CreateRequest::Origin::kStopped
                                                      : CreateRequest::Origin::kNew;
    request.from =
        object.value("warm", false) ? CreateRequest::From::kWarm : CreateRequest::From::kNothing;
    request.lease_ms = object.at("lease_ms").get<std::uint64_t>();
    CARREL_ASSIGN(request.spec, policy::spec_from_json(object.at("spec").get<std::string>()));
    const Json& trees = object.at("trees");
    if (trees.size() != descriptors.size()) {
      return Error{Code::kInvalid, 0, "the request to the keeper lacks a descriptor", {}};
    }
    for (std::size_t i = 0; i < trees.size(); ++i) {
      request.trees.push_back(decode_tree(trees.at(i), std::move(descriptors[i])));
    }
    return request;
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kInvalid, 0, "the request to the keeper is malformed", {}};
  }
}

std::string encode_keep_warm(const KeepWarm& wish) {
  return Json{{"keep_warm", wish.count}, {"place", wish.place}}.dump();
}

std::optional<KeepWarm> decode_keep_warm(const std::string& text) {
  if (!text.starts_with(R"({"keep_warm":)")) {
    return std::nullopt;
  }
  Json object = Json::parse(text, nullptr, false);
  if (!object.is_object() || !object["keep_warm"].is_number_unsigned()) {
    return std::nullopt;
  }
  KeepWarm wish{object["keep_warm"].get<std::size_t>(), {}};
  if (const auto place = object.find("place"); place != object.end() && place->is_string()) {
    wish.place = place->get<std::string>();
  }
  return wish;
}

std::string encode_watch(const WatchWish& wish) {
  return Json{{"watch", wish.kind == WatchWish::Kind::kKeep ? "keep" : "take"},
              {"id", wish.id},
              {"snapshot", wish.watch.snapshot},
              {"index_ns", wish.watch.index_ns}}
      .dump();
}

std::optional<WatchWish> decode_watch(const std::string& text, std::vector<UniqueFd>& descriptors) {
  if (!text.starts_with(R"({"watch":)")) {
    return std::nullopt;
  }
  try {
    const Json object = Json::parse(text);
    WatchWish wish;
    wish.kind = object.at("watch").get<std::string>() == "keep" ? WatchWish::Kind::kKeep
                                                                : WatchWish::Kind::kTake;
    wish.id = object.at("id").get<std::string>();
    wish.watch.snapshot = object.at("snapshot").get<std::string>();
    wish.watch.index_ns = object.at("index_ns").get<std::int64_t>();
    if (descriptors.size() == 1) {
      wish.watch.events = std::move(descriptors.front());
    }
    descriptors.clear();
    return wish;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string place_of_this_process() {
  std::string place;
  for (const char* kind : {"mnt", "pid", "user", "cgroup"}) {
    struct stat info{};
    if (::stat(("/proc/self/ns/" + std::string(kind)).c_str(), &info) != 0) {
      return {};
    }
    place += std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + " ";
  }
  return place;
}

std::string encode_offer(const Offer& offer) {
  Json object;
  object["offer"] = offer.id;
  object["parent"] = offer.parent;
  object["why_no_scope"] = offer.why_no_scope;
  object["pid"] = offer.pid;
  object["id_range"] = offer.id_range.has_value() ? Json(*offer.id_range) : Json();
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::optional<Offer>> decode_offer(const std::string& text,
                                          std::vector<UniqueFd> descriptors) {
  constexpr std::size_t kDescriptors = 4;
  if (!text.starts_with(R"({"offer":)")) {
    return std::optional<Offer>();
  }
  try {
    const Json object = Json::parse(text);
    Offer offer;
    offer.id = object.at("offer").get<std::string>();
    offer.parent = object.at("parent").get<std::string>();
    offer.why_no_scope = object.at("why_no_scope").get<std::string>();
    offer.pid = object.at("pid").get<pid_t>();
    if (const Json& range = object.at("id_range"); !range.is_null()) {
      offer.id_range = range.get<std::uint32_t>();
    }
    if (storage::is_id(offer.id) && offer.pid > 0 && descriptors.size() == kDescriptors) {
      offer.lock = std::move(descriptors[0]);
      offer.listener = std::move(descriptors[1]);
      offer.stream = std::move(descriptors[2]);
      offer.process = std::move(descriptors[3]);
      return std::optional<Offer>(std::move(offer));
    }
  } catch (const nlohmann::json::exception&) {
  }
  return Error{Code::kInvalid, 0, "the keeper's offer is malformed", {}};
}

std::string encode_answer(const Result<std::string>& id) {
  Json object;
  if (id.ok()) {
    object["id"] = id.value();
  } else {
    object["code"] = static_cast<int>(id.error().code);
    object["errno"] = id.error().error_number;
    object["message"] = id.error().message;
    object["hint"] = id.error().hint;
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> decode_answer(const std::string& text) {
  try {
    Json object = Json::parse(text);
    if (object.contains("id")) {
      return object.at("id").get<std::string>();
    }
    int code = object.at("code").get<int>();
    return Error{code >= 0 && code <= static_cast<int>(Code::kSystem) ? static_cast<Code>(code)
                                                                      : Code::kSystem,
                 object.at("errno").get<int>(), object.at("message").get<std::string>(),
                 object.at("hint").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kSystem, 0, "the keeper's answer is malformed", {}};
  }
}

std::string frame_message(const std::string& text) {
  std::uint32_t size = static_cast<std::uint32_t>(text.size());
  std::string data(reinterpret_cast<const char*>(&size), sizeof size);
  return data + text;
}

}  // namespace carrel::native
