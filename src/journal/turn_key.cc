#include "journal/turn_key.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/sha256.h"
#include "journal/json_text.h"
#include "journal/redact.h"

namespace carrel::journal {
namespace {

void add_sorted(std::vector<KeyPart>& parts, const char* kind, std::vector<KeyPart> named) {
  std::sort(named.begin(), named.end(), [](const KeyPart& a, const KeyPart& b) {
    return std::tie(a.name, a.value) < std::tie(b.name, b.value);
  });
  for (KeyPart& part : named) {
    parts.push_back({kind + std::move(part.name), std::move(part.value)});
  }
}

void add_text(Sha256& sum, std::string_view text) {
  sum.update(std::to_string(text.size()) + ":");
  sum.update(text);
}

}  // namespace

std::vector<KeyPart> parts_of(const TurnSubject& subject, const TurnPlace& place) {
  std::vector<KeyPart> parts = {{"store", place.store},
                                {"flow", place.flow},
                                {"step", subject.step.empty() ? "default" : subject.step},
                                {"code version", subject.code_version},
                                {"prompt", subject.prompt}};
  add_sorted(parts, "input ", subject.inputs);
  parts.push_back({"model", subject.model});
  parts.push_back({"system prompt", subject.system_prompt});
  parts.push_back({"tools", subject.tools});
  add_sorted(parts, "skill ", subject.skills);
  parts.push_back({"image", subject.image});
  parts.push_back({"policy", subject.policy});
  parts.push_back({"files", place.files});
  for (const std::string& kind : subject.kinds) {
    parts.push_back({"output kind", kind});
  }
  return parts;
}

std::string key_of(const std::vector<KeyPart>& parts) {
  Sha256 sum;
  sum.update("carrel turn 1\n");
  for (const KeyPart& part : parts) {
    add_text(sum, part.name);
    add_text(sum, part.value);
  }
  return sum.finish();
}

std::vector<RecordedPart> record_parts(const std::vector<KeyPart>& parts) {
  std::vector<RecordedPart> recorded;
  recorded.reserve(parts.size());
  for (const KeyPart& part : parts) {
    const bool secret = is_secret_name(part.name);
    recorded.push_back(
        {part.name, sha256(part.value), secret ? "[redacted]" : cap(redact(part.value))});
  }
  return recorded;
}

std::string parts_to_json(const std::vector<RecordedPart>& parts) {
  Json list = Json::array();
  for (const RecordedPart& part : parts) {
    list.push_back({{"name", part.name}, {"sha256", part.digest}, {"value", part.preview}});
  }
  return to_text(list);
}

Result<std::vector<RecordedPart>> parts_from_json(std::string_view text) {
  CARREL_ASSIGN(const Json list, parse_json(text, "the record of a turn's parts"));
  std::vector<RecordedPart> parts;
  for (const Json& part : list) {
    const auto field = [&](const char* name) {
      const auto found = part.is_object() ? part.find(name) : part.end();
      return part.is_object() && found != part.end() && found->is_string()
                 ? found->get<std::string>()
                 : std::string();
    };
    parts.push_back({field("name"), field("sha256"), field("value")});
    if (parts.back().name.empty() || !is_sha256(parts.back().digest)) {
      return Error{Code::kInvalid, 0, "the record of a turn's parts is damaged", {}};
    }
  }
  return parts;
}

std::vector<PartChange> compare_parts(const std::vector<RecordedPart>& before,
                                      const std::vector<RecordedPart>& now) {
  std::multimap<std::string, const RecordedPart*> left;
  for (const RecordedPart& part : before) {
    left.emplace(part.name, &part);
  }
  std::vector<PartChange> changes;
  for (const RecordedPart& part : now) {
    const auto found = left.find(part.name);
    if (found == left.end()) {
      changes.push_back({PartChange::Kind::kAdded, part.name, "", part.preview});
      continue;
    }
    if (found->second->digest != part.digest) {
      changes.push_back(
          {PartChange::Kind::kChanged, part.name, found->second->preview, part.preview});
    }
    left.erase(found);
  }
  for (const auto& [name, part] : left) {
    changes.push_back({PartChange::Kind::kRemoved, name, part->preview, ""});
  }
  return changes;
}

}  // namespace carrel::journal
