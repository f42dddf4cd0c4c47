#include "storage/images/image_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "storage/images/image_use.h"
#include "storage/images/images_test_support.h"
#include "storage/images/import.h"
#include "storage/state.h"

namespace carrel::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ImageStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    UniqueFd made = scratch_.directory("home");
    ::chmod(scratch_.path().c_str(), 0755);
    auto home = Home::open_at(scratch_ / "home");
    ASSERT_TRUE(home.ok()) << home.error().to_string();
    home_ = std::make_unique<Home>(std::move(home.value()));
    scratch_.write("tree/etc/marker", "one");
  }
  ImageRecord import(const std::string& name) {
    auto imported = import_image(*home_, {scratch_ / "tree", name, nullptr});
    EXPECT_TRUE(imported.ok()) << imported.error().to_string();
    return imported.ok() ? imported.value().front().record : ImageRecord{};
  }
  std::vector<std::string> folder(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_ / ("home/images/" + name))) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    const auto images = list_images(*home_);
    for (const ImageRecord& record : images.value()) {
      all.push_back(record.name);
    }
    return all;
  }
  Scratch scratch_;
  std::unique_ptr<Home> home_;
};

TEST_F(ImageStoreTest, EqualLayersAreKeptOnce) {
  const ImageRecord one = import("one");
  const ImageRecord two = import("two");
  EXPECT_EQ(one.layers, two.layers);
  EXPECT_THAT(folder("layers"), ElementsAre(one.layers[0]));
  EXPECT_THAT(names(), ElementsAre("one", "two"));
  ASSERT_TRUE(remove_images(*home_, {"one"}).ok());
  EXPECT_THAT(folder("layers"), ElementsAre(one.layers[0]));
  ASSERT_TRUE(remove_images(*home_, {"two"}).ok());
  EXPECT_THAT(folder("layers"), IsEmpty());
  EXPECT_THAT(folder("roots"), IsEmpty());
}

TEST_F(ImageStoreTest, NameIsFoundWithAndWithoutItsTag) {
  import("tool:latest");
  EXPECT_EQ(use_image(*home_, "tool").value().record.name, "tool:latest");
  EXPECT_EQ(use_image(*home_, "tool:latest").value().record.name, "tool:latest");
  for (const char* name : {"tool:1", "../names/tool", "x.new", "host", ""}) {
    EXPECT_EQ(use_image(*home_, name).error().code, Code::kNotFound) << name;
  }
  import("x.new");
  EXPECT_THAT(names(), ElementsAre("tool:latest", "x.new"));
}

TEST_F(ImageStoreTest, WhatACrashLeftIsSweptByTheNextCommand) {
  import("kept");
  scratch_.write("home/images/new/half/tree/file", "x");
  scratch_.write("home/images/layers/" + std::string(64, 'a') + "/tree/file", "x");
  scratch_.write("home/images/roots/" + std::string(32, 'b') + "/file", "x");
  scratch_.write("home/images/names/kept.json.123.new", "x");
  EXPECT_THAT(names(), ElementsAre("kept"));
  EXPECT_THAT(folder("new"), IsEmpty());
  EXPECT_EQ(folder("layers").size(), 1U);
  EXPECT_EQ(folder("roots").size(), 1U);
  EXPECT_EQ(folder("names").size(), 1U);
  EXPECT_EQ(use_image(*home_, "kept").ok(), true);
}

TEST_F(ImageStoreTest, NothingIsSweptWhileAnotherIsAtWork) {
  import("kept");
  auto opened = ImageStore::open(*home_);
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  ImageStore& other = opened.value();
  ASSERT_TRUE(other.lock().ok());
  const std::string draft = other.make_draft().value();
  EXPECT_THAT(names(), ElementsAre("kept"));
  EXPECT_THAT(folder("new"), ElementsAre(draft));
}

TEST_F(ImageStoreTest, DamagedRecordCostsNoFiles) {
  const ImageRecord record = import("hurt");
  scratch_.write("home/images/names/hurt.json", "{");
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_THAT(folder("layers"), ElementsAre(record.layers[0]));
  EXPECT_EQ(use_image(*home_, "hurt").error().code, Code::kConflict);
  ASSERT_TRUE(remove_images(*home_, {"hurt"}).ok());
  EXPECT_THAT(folder("layers"), IsEmpty());
}

TEST_F(ImageStoreTest, UsedImageStaysUntilItIsNotUsed) {
  const ImageRecord record = import("busy");
  {
    auto used = use_image(*home_, "busy");
    ASSERT_TRUE(used.ok()) << used.error().to_string();
    EXPECT_THAT(remove_images(*home_, {"busy"}).error().message, HasSubstr("used by a sandbox"));
    // Replaced under the same name, its files stay for the one who has them.
    scratch_.write("tree/etc/marker", "two");
    const ImageRecord newer = import("busy");
    EXPECT_NE(newer.root, record.root);
    EXPECT_EQ(scratch_.read("home/images/roots/" + record.root + "/etc/marker"), "one");
    EXPECT_EQ(prune_images(*home_).value().roots, 0U);
  }
  EXPECT_EQ(prune_images(*home_).value().roots, 1U);
  EXPECT_TRUE(remove_images(*home_, {"busy"}).ok());
}

TEST_F(ImageStoreTest, ImageOfALongLivedSandboxStays) {
  const ImageRecord record = import("busy");
  auto opened = State::open(*home_);
  ASSERT_TRUE(opened.ok()) << opened.error().to_string();
  State& state = opened.value();
  SandboxRow row;
  row.id = "one";
  row.state = "creating";
  row.spec = "{\"image\":\"dir:" + (scratch_ / "home/images/roots/") + record.root + "\"}";
  row.enforcement = "[]";
  ASSERT_TRUE(state.add(row).ok());
  EXPECT_THAT(remove_images(*home_, {"busy"}).error().message, HasSubstr("used by a sandbox"));
  scratch_.write("tree/etc/marker", "two");
  import("busy");
  EXPECT_EQ(scratch_.read("home/images/roots/" + record.root + "/etc/marker"), "one");
  ASSERT_TRUE(state.set_ended("one", "over").ok());
  EXPECT_TRUE(remove_images(*home_, {"busy"}).ok());
}

TEST_F(ImageStoreTest, OneOfTwoNamesOfAUsedImageCanGo) {
  const std::string config =
      "{\"rootfs\":{\"diff_ids\":[\"sha256:" + sha256(Tar().file("a", "x").bytes()) + "\"]}}";
  scratch_.write("saved/config.json", config);
  scratch_.write("saved/layer.tar", Tar().file("a", "x").bytes());
  scratch_.write("saved/manifest.json",
                 "[{\"Config\":\"config.json\",\"RepoTags\":[\"t:1\",\"t:2\"],"
                 "\"Layers\":[\"layer.tar\"]}]");
  auto imported = import_image(*home_, {scratch_ / "saved", "", nullptr});
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  EXPECT_THAT(names(), ElementsAre("t:1", "t:2"));
  EXPECT_THAT(folder("roots"), ElementsAre(imported.value()[0].record.root));
  auto used = use_image(*home_, "t:1");
  EXPECT_FALSE(remove_images(*home_, {"t:1", "t:2"}).ok());
  EXPECT_TRUE(remove_images(*home_, {"t:1"}).ok());
  EXPECT_FALSE(remove_images(*home_, {"t:2"}).ok());
}

TEST_F(ImageStoreTest, AllAreRemovedOrNone) {
  import("one");
  import("two");
  EXPECT_THAT(remove_images(*home_, {"one", "missing"}).error().message,
              HasSubstr("image 'missing' is not here"));
  EXPECT_THAT(names(), ElementsAre("one", "two"));
}

TEST_F(ImageStoreTest, FailedImportLeavesNothing) {
  scratch_.write("bad.tar", Tar().file("good", "x").file("../bad", "x").bytes());
  auto imported = import_image(*home_, {scratch_ / "bad.tar", "bad", nullptr});
  ASSERT_FALSE(imported.ok());
  EXPECT_THAT(imported.error().message, HasSubstr("bad.tar': '../bad' leaves the tree"));
  for (const char* name : {"new", "layers", "roots", "names"}) {
    EXPECT_THAT(folder(name), IsEmpty()) << name;
  }
}

TEST_F(ImageStoreTest, LayerWithAnotherDigestIsRefused) {
  const std::string config = "{\"rootfs\":{\"diff_ids\":[\"sha256:" + sha256("other") + "\"]}}";
  scratch_.write("saved/" + sha256(config) + ".json", config);
  scratch_.write("saved/layer.tar", Tar().file("a", "x").bytes());
  scratch_.write("saved/manifest.json",
                 "[{\"Config\":\"" + sha256(config) +
                     ".json\",\"RepoTags\":[\"t:1\"],\"Layers\":[\"layer.tar\"]}]");
  auto imported = import_image(*home_, {scratch_ / "saved", "", nullptr});
  ASSERT_FALSE(imported.ok());
  EXPECT_THAT(imported.error().message, HasSubstr("does not have the digest"));
  EXPECT_THAT(folder("layers"), IsEmpty());
}

TEST_F(ImageStoreTest, DirectoryWithTheStoreInItIsTakenWithoutIt) {
  auto imported = import_image(*home_, {scratch_.path(), "all", nullptr});
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  const std::string root = "home/images/roots/" + imported.value()[0].record.root;
  EXPECT_EQ(scratch_.read(root + "/tree/etc/marker"), "one");
  EXPECT_TRUE(scratch_.exists(root + "/home/installation"));
  EXPECT_FALSE(scratch_.exists(root + "/home/images"));
}

TEST_F(ImageStoreTest, DirectoryIsTakenWithoutItsDevicesAndRights) {
  ::mkfifo((scratch_ / "tree/pipe").c_str(), 0600);
  ::chmod(scratch_.write("tree/bin/su", "x").c_str(), 04755);
  auto imported = import_image(*home_, {scratch_ / "tree", "t", nullptr});
  ASSERT_TRUE(imported.ok()) << imported.error().to_string();
  EXPECT_EQ(imported.value()[0].left_out.devices, 1U);
  EXPECT_EQ(imported.value()[0].left_out.set_ids, 1U);
  const std::string root = "home/images/roots/" + imported.value()[0].record.root;
  struct stat info{};
  ASSERT_EQ(::stat((scratch_ / (root + "/bin/su")).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755U);
  EXPECT_FALSE(scratch_.exists(root + "/pipe"));
}

}  // namespace
}  // namespace carrel::storage
