#include "backends/microvm/firecracker.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "backends/microvm/hall.h"

namespace carrel::microvm {
namespace {

using nlohmann::json;

// What Firecracker's document of its API allows (its "swagger" of versions 1.8 to 1.16), of what is
// used here: it refuses every field that it does not know.
struct Field {
  enum class Type { kText, kTruth, kNumber } type{};
  enum class Presence { kOptional, kRequired } presence = Presence::kOptional;
  std::set<std::string> values = {};  // of a text; none: any
  std::int64_t least = 0;
  std::int64_t most = INT64_MAX;
};
using Fields = std::map<std::string, Field>;

const auto kText = Field::Type::kText;
const auto kTruth = Field::Type::kTruth;
const auto kNumber = Field::Type::kNumber;
const auto kOptional = Field::Presence::kOptional;
const auto kRequired = Field::Presence::kRequired;

const Fields kBootSource = {
    {"kernel_image_path", {kText, kRequired}}, {"initrd_path", {kText}}, {"boot_args", {kText}}};
const Fields kDrive = {{"drive_id", {kText, kRequired}},
                       {"is_root_device", {kTruth, kRequired}},
                       {"partuuid", {kText}},
                       {"cache_type", {kText, kOptional, {"Unsafe", "Writeback"}}},
                       {"is_read_only", {kTruth}},
                       {"path_on_host", {kText}},
                       {"io_engine", {kText, kOptional, {"Sync", "Async"}}},
                       {"socket", {kText}}};
const Fields kMachine = {{"vcpu_count", {kNumber, kRequired, {}, 1, 32}},
                         {"mem_size_mib", {kNumber, kRequired, {}, 1}},
                         {"smt", {kTruth}},
                         {"track_dirty_pages", {kTruth}},
                         {"huge_pages", {kText, kOptional, {"None", "2M"}}}};
const Fields kVsock = {{"guest_cid", {kNumber, kRequired, {}, 3, UINT32_MAX}},
                       {"uds_path", {kText, kRequired}},
                       {"vsock_id", {kText}}};

void check(const json& object, const Fields& fields, const std::string& where) {
  ASSERT_TRUE(object.is_object()) << where;
  for (const auto& [name, value] : object.items()) {
    const auto found = fields.find(name);
    ASSERT_NE(found, fields.end()) << where << "." << name;
    const Field& field = found->second;
    switch (field.type) {
      case Field::Type::kText:
        ASSERT_TRUE(value.is_string()) << where << "." << name;
        EXPECT_TRUE(field.values.empty() || field.values.contains(value)) << where << "." << name;
        break;
      case Field::Type::kTruth:
        EXPECT_TRUE(value.is_boolean()) << where << "." << name;
        break;
      case Field::Type::kNumber:
        ASSERT_TRUE(value.is_number_integer()) << where << "." << name;
        EXPECT_GE(value.get<std::int64_t>(), field.least) << where << "." << name;
        EXPECT_LE(value.get<std::int64_t>(), field.most) << where << "." << name;
    }
  }
  for (const auto& [name, field] : fields) {
    EXPECT_TRUE(field.presence == Field::Presence::kOptional || object.contains(name))
        << where << "." << name;
  }
}

json settings_of(const MachineTerms& terms) {
  return json::parse(firecracker_settings(terms), nullptr, false);
}

TEST(FirecrackerTest, SettingsAreWhatItsDocumentAllows) {
  const json settings = settings_of({Accelerator::kKvm, 512U << 20, 2});
  ASSERT_TRUE(settings.is_object());
  ASSERT_EQ(settings.size(), 4U) << settings;
  check(settings["boot-source"], kBootSource, "boot-source");
  ASSERT_EQ(settings["drives"].size(), 1U);
  check(settings["drives"][0], kDrive, "drives");
  check(settings["machine-config"], kMachine, "machine-config");
  check(settings["vsock"], kVsock, "vsock");
}

// CRITICAL: of these depends what a machine can do to the host.
TEST(FirecrackerTest, AMachineHasADriveThatIsReadASocketAndNothingElse) {
  const json settings = settings_of({Accelerator::kKvm, 512U << 20, 2});
  EXPECT_EQ(settings["drives"][0]["is_read_only"], true);
  EXPECT_EQ(settings["drives"][0]["path_on_host"], kDrivePlace);
  EXPECT_EQ(settings["drives"][0]["is_root_device"], false);
  EXPECT_EQ(settings["vsock"]["uds_path"], kLinePlace);
  for (const char* const device : {"network-interfaces", "mmds-config", "balloon", "pmem",
                                   "memory-hotplug", "logger", "metrics", "entropy"}) {
    EXPECT_FALSE(settings.contains(device)) << device;
  }
}

TEST(FirecrackerTest, ItsFirstProcessIsToldLast) {
  const json settings = settings_of({Accelerator::kKvm, 512U << 20, 2});
  const std::string words = settings["boot-source"]["boot_args"];
  EXPECT_TRUE(words.ends_with(" -- machine vsock")) << words;
  EXPECT_NE(words.find("reboot=k"), std::string::npos) << "it would not end with success";
  EXPECT_EQ(words.find("console="), std::string::npos) << words;
}

TEST(FirecrackerTest, SizesAreWholeAndWithinItsBounds) {
  const json odd = settings_of({Accelerator::kKvm, (512U << 20) + 1, 0});
  EXPECT_EQ(odd["machine-config"]["mem_size_mib"], 513);
  EXPECT_EQ(odd["machine-config"]["vcpu_count"], 1);
  const json many = settings_of({Accelerator::kKvm, 1ULL << 40, 200});
  EXPECT_EQ(many["machine-config"]["mem_size_mib"], 1 << 20);
  EXPECT_EQ(many["machine-config"]["vcpu_count"], 32);
}

}  // namespace
}  // namespace carrel::microvm
