#include "backends/native/keeper_message.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "storage/home.h"

namespace carrel::native {
namespace {

TEST(KeeperMessage, WarmSandboxesAreAskedForByNumberAndById) {
  EXPECT_EQ(decode_keep_warm(encode_keep_warm({7, "here"}))->count, 7U);
  EXPECT_EQ(decode_keep_warm(encode_keep_warm({7, "here"}))->place, "here");
  EXPECT_EQ(decode_keep_warm(R"({"keep_warm":2})")->place, "");
  EXPECT_FALSE(decode_keep_warm(R"({"keep_warm":-1})").has_value());
  EXPECT_FALSE(decode_keep_warm(R"({"keep_warm":"x"})").has_value());
  EXPECT_FALSE(decode_keep_warm(R"({"keep_warm":)").has_value());
  CreateRequest request;
  request.id = storage::make_id();
  EXPECT_FALSE(decode_keep_warm(encode_create(request)).has_value());
  EXPECT_EQ(decode_create(encode_create(request), {})->from, CreateRequest::From::kNothing);
  request.from = CreateRequest::From::kWarm;
  EXPECT_EQ(decode_create(encode_create(request), {})->from, CreateRequest::From::kWarm);
}

TEST(KeeperMessage, AWatchArrivesWithItsDescriptor) {
  std::vector<UniqueFd> descriptors;
  descriptors.emplace_back(::dup(0));
  const std::string kept = encode_watch({WatchWish::Kind::kKeep, "id", {"snapshot", -7, {}}});
  const auto wish = decode_watch(kept, descriptors);
  ASSERT_TRUE(wish.has_value());
  EXPECT_EQ(wish->kind, WatchWish::Kind::kKeep);
  EXPECT_EQ(wish->id, "id");
  EXPECT_EQ(wish->watch.snapshot, "snapshot");
  EXPECT_EQ(wish->watch.index_ns, -7);
  EXPECT_TRUE(wish->watch.events.valid());
  EXPECT_TRUE(descriptors.empty());
  const auto asked = decode_watch(encode_watch({WatchWish::Kind::kTake, "id", {}}), descriptors);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->kind, WatchWish::Kind::kTake);
  EXPECT_FALSE(asked->watch.events.valid());
  descriptors.emplace_back(::dup(0));
  descriptors.emplace_back(::dup(0));
  EXPECT_FALSE(decode_watch(kept, descriptors)->watch.events.valid()) << "which one is it?";
  for (const char* text : {"", "{}", R"({"watch":)", R"({"watch":1})", R"({"watch":"keep"})"}) {
    EXPECT_FALSE(decode_watch(text, descriptors).has_value()) << text;
  }
}

TEST(KeeperMessage, AnOfferArrivesWithItsFourDescriptors) {
  const auto some = [](std::size_t count) {
    std::vector<UniqueFd> descriptors;
    while (descriptors.size() < count) {
      descriptors.emplace_back(::dup(0));
    }
    return descriptors;
  };
  Offer offer;
  offer.id = storage::make_id();
  offer.parent = "/a group";
  offer.why_no_scope = "nobody \"knows\"";
  offer.pid = 77;
  offer.id_range = 5;
  const std::string text = encode_offer(offer);
  std::vector<UniqueFd> descriptors = some(4);
  const int stream = descriptors[2].get();
  auto got = decode_offer(text, std::move(descriptors));
  ASSERT_TRUE(got.ok() && got->has_value());
  EXPECT_EQ((*got)->id, offer.id);
  EXPECT_EQ((*got)->parent, offer.parent);
  EXPECT_EQ((*got)->why_no_scope, offer.why_no_scope);
  EXPECT_EQ((*got)->pid, 77);
  EXPECT_EQ((*got)->id_range, 5U);
  EXPECT_EQ((*got)->stream.get(), stream);
  EXPECT_FALSE(decode_offer(text, some(3)).ok());
  EXPECT_FALSE(decode_offer(text, some(5)).ok());
  offer.id_range.reset();
  EXPECT_FALSE((*decode_offer(encode_offer(offer), some(4)))->id_range.has_value());
  // A number that is no process's must never come to be signalled.
  for (const pid_t wrong : {0, -1}) {
    offer.pid = wrong;
    EXPECT_FALSE(decode_offer(encode_offer(offer), some(4)).ok());
  }
  offer.pid = 77;
  offer.id = "../x";
  EXPECT_FALSE(decode_offer(encode_offer(offer), some(4)).ok());
  EXPECT_FALSE(decode_offer(encode_answer(storage::make_id()), {})->has_value());
}

TEST(KeeperMessage, ARequestArrivesAsItWasMeant) {
  CreateRequest request;
  request.id = storage::make_id();
  request.name = "dev \"box\"\n";
  request.lease_ms = 1234;
  request.spec.environment = {{"KEY", "a value"}};
  GivenTree tree;
  tree.path = "/srv/\xff";
  tree.target = "/data";
  tree.kind = GivenTree::Kind::kFile;
  tree.mode = policy::MountMode::kReadWrite;
  tree.owner = {1001, 1002};
  tree.standing = GivenTree::Standing::kNowhere;
  tree.own_bytes = 1ULL << 40;
  tree.overlay = {"/h\xfd",       {"layers/a/tree"}, "w/mount/tree",
                  "w/mount/work", "w/stage",         "w/mount"};
  tree.hidden = {{".env\xfe", GivenTree::Kind::kFolder, "a name"}};
  request.trees.push_back(std::move(tree));
  std::vector<UniqueFd> descriptors;
  descriptors.emplace_back(::dup(0));
  const int descriptor = descriptors[0].get();
  auto got = decode_create(encode_create(request), std::move(descriptors));
  ASSERT_TRUE(got.ok()) << got.error().to_string();
  EXPECT_EQ(got.value().id, request.id);
  EXPECT_EQ(got.value().name, request.name);
  EXPECT_EQ(got.value().lease_ms, 1234U);
  ASSERT_EQ(got.value().spec.environment.size(), 1U);
  EXPECT_EQ(got.value().spec.environment[0].value, "a value");
  ASSERT_EQ(got.value().trees.size(), 1U);
  const GivenTree& arrived = got.value().trees[0];
  EXPECT_EQ(arrived.source.get(), descriptor);
  EXPECT_EQ(arrived.path, "/srv/\xff");
  EXPECT_EQ(arrived.target, "/data");
  EXPECT_EQ(arrived.kind, GivenTree::Kind::kFile);
  EXPECT_EQ(arrived.mode, policy::MountMode::kReadWrite);
  EXPECT_EQ(arrived.owner.user, 1001U);
  EXPECT_EQ(arrived.owner.group, 1002U);
  EXPECT_EQ(arrived.standing, GivenTree::Standing::kNowhere);
  EXPECT_EQ(arrived.own_bytes, 1ULL << 40);
  ASSERT_TRUE(arrived.overlay.has_value());
  EXPECT_EQ(arrived.overlay->top, "/h\xfd");
  EXPECT_EQ(arrived.overlay->place, "w/stage");
  EXPECT_EQ(arrived.overlay->mount, "w/mount");
  ASSERT_EQ(arrived.hidden.size(), 1U);
  EXPECT_EQ(arrived.hidden[0].path, ".env\xfe");
  EXPECT_EQ(arrived.hidden[0].kind, GivenTree::Kind::kFolder);
}

TEST(KeeperMessage, EveryTreeComesWithItsDescriptor) {
  CreateRequest request;
  request.id = storage::make_id();
  request.trees.emplace_back();
  EXPECT_FALSE(decode_create(encode_create(request), {}).ok());
  std::vector<UniqueFd> two;
  two.emplace_back(::dup(0));
  two.emplace_back(::dup(0));
  EXPECT_FALSE(decode_create(encode_create(request), std::move(two)).ok());
}

TEST(KeeperMessage, AnythingElseIsAnErrorAndNotACrash) {
  CreateRequest request;
  request.id = "../../../etc/passwd";
  for (const std::string& text :
       {encode_create(request), std::string(), std::string("{"), std::string("null"),
        std::string("[]"), std::string("{\"id\":{}}"), std::string("\xff\xfe")}) {
    auto got = decode_create(text, {});
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.error().code, Code::kInvalid) << text;
  }
}

TEST(KeeperMessage, AnErrorKeepsItsCodeNumberAndHint) {
  auto got = decode_answer(encode_answer(Error{Code::kDenied, 13, "no \xff way", "ask"}));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Code::kDenied);
  EXPECT_EQ(got.error().error_number, 13);
  EXPECT_EQ(got.error().hint, "ask");
  EXPECT_EQ(decode_answer(encode_answer(std::string("an id"))).value(), "an id");
  EXPECT_EQ(decode_answer("{\"code\":999,\"errno\":1,\"message\":\"\",\"hint\":\"\"}").error().code,
            Code::kSystem);
  EXPECT_FALSE(decode_answer("not json").ok());
}

TEST(KeeperMessage, ItsLengthComesFirst) {
  EXPECT_EQ(frame_message("abc"), std::string("\3\0\0\0abc", 7));
}

}  // namespace
}  // namespace carrel::native
