#include "backends/native/doctor.h"

#include <nlohmann/json.hpp>
#include <string>

#include "backends/native/doctor_probe.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {

std::string as_json(const native::Diagnosis& diagnosis) {
  nlohmann::ordered_json object;
  object["ok"] = diagnosis.ok;
  object["checks"] = nlohmann::ordered_json::array();
  for (const native::Check& check : diagnosis.checks) {
    object["checks"].push_back({{"name", check.name},
                                {"status", native::status_name(check.status)},
                                {"detail", replace_invalid_utf8(check.detail)},
                                {"fix", replace_invalid_utf8(check.fix)}});
  }
  return object.dump() + "\n";
}

std::string as_table(const native::Diagnosis& diagnosis) {
  std::vector<std::vector<std::string>> rows;
  std::string not_tried;
  for (const native::Check& check : diagnosis.checks) {
    if (!check.tried) {
      not_tried += (not_tried.empty() ? "not tried: " : ", ") + check.name;
      continue;
    }
    rows.push_back({std::string(native::status_name(check.status)), check.name, check.detail});
    if (!check.fix.empty()) {
      rows.push_back({"", "", "to change it: " + check.fix});
    }
  }
  if (!not_tried.empty()) {
    not_tried += "\n";
  }
  return table(rows) + "\n" + not_tried + printable(diagnosis.verdict) + "\n";
}

}  // namespace

int doctor_command(const Context& context) {
  auto home = storage::Home::open();
  const native::Diagnosis diagnosis = native::diagnose(native::examine_host(home));
  print(context.json() ? as_json(diagnosis) : as_table(diagnosis));
  return diagnosis.ok ? 0 : kCarrelFailed;
}

}  // namespace carrel::cli
