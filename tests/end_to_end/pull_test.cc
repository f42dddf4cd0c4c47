// Images from registries: Debian's docker-registry on loopback, and one that misbehaves.
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/box.h"
#include "support/fixture.h"
#include "support/registry.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;

class Pull : public CarrelTest {
 protected:
  [[nodiscard]] std::string directory() const { return place().work(GetParam()) + "/registry"; }
  [[nodiscard]] std::string images() const { return place().home(GetParam()) + "/images"; }
  [[nodiscard]] std::size_t count(const std::string& folder) const {
    const fs::path path = images() + "/" + folder;
    return fs::exists(path) ? static_cast<std::size_t>(std::distance(fs::directory_iterator(path),
                                                                     fs::directory_iterator()))
                            : 0;
  }
  Run pull(const std::string& image, std::vector<std::string> options = {},
           const Options& how = {}) const {
    std::vector<std::string> words = {"image", "pull", image};
    words.insert(words.end(), options.begin(), options.end());
    return carrel(words, how);
  }
  std::string marker(const std::string& image) const {
    Run run = carrel({"run", "--image", image, "--", "cat", "/etc/marker"});
    return run.status == 0 ? run.out : run.err;
  }
  // A Docker configuration with the password for a registry, as a variable of the environment.
  std::string with_password(const std::string& registry) const {
    const std::string folder = place().work(GetParam()) + "/docker";
    fs::create_directories(folder);
    write_text(folder + "/config.json", docker_config(registry));
    place().give(folder, GetParam());
    place().give(folder + "/config.json", GetParam());
    return "DOCKER_CONFIG=" + folder;
  }
};
CARREL_AS_BOTH(Pull);

TEST_P(Pull, ImagesOfARegistryRun) {
  RegistryServer server("debian", directory(), "none");
  Run pulled = pull(server.image("team/tool:v1"));
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(pulled.out, server.image("team/tool:v1") + "\n");
  EXPECT_EQ(pulled.err, "");
  EXPECT_EQ(marker(server.image("team/tool:v1")), "one\n");
  Run own = carrel({"run", "--image", server.image("team/tool:v1")});
  EXPECT_EQ(own.out, "main in /app\n") << own.err;
  // An index, in both of its formats, leads to the image for this host.
  for (const char* name : {"many", "list"}) {
    Run chosen = pull(server.image(name), {"--json", "--name", name});
    ASSERT_EQ(chosen.status, 0) << chosen.out;
    const json image = json::parse(chosen.out)["images"][0];
    EXPECT_EQ(image["name"], name);
    EXPECT_EQ(image["digest"], server.digest("many-manifest"));
    EXPECT_EQ(image["index_digest"], server.digest(name));
    EXPECT_EQ(image["source"], server.image(name) + ":latest");
    EXPECT_EQ(image["config"]["WorkingDir"], "/app");
    EXPECT_EQ(marker(name), "here\n");
  }
  Run foreign = pull(server.image("foreign"));
  EXPECT_EQ(foreign.status, 125);
  EXPECT_TRUE(says_one_line(foreign, "the image is for s390x"));
  Run missing = pull(server.image("team/tool:v2"));
  EXPECT_EQ(missing.status, 125);
  EXPECT_TRUE(says_one_line(missing, "does not have"));
  EXPECT_EQ(count("downloads"), 0U);
  EXPECT_EQ(count("layers"), 3U);  // the lowest is shared
}

TEST_P(Pull, PasswordsAndTokensComeFromDockersConfiguration) {
  for (const char* how : {"basic", "token"}) {
    RegistryServer server("debian", directory() + "-" + how, how);
    Run refused = pull(server.image("team/tool:v1"));
    EXPECT_EQ(refused.status, 125) << how;
    EXPECT_TRUE(says_one_line(refused, "docker login")) << how;
    const std::string registry = "127.0.0.1:" + std::to_string(server.port());
    Run pulled = pull(server.image("team/tool:v1"), {}, {.environment = {with_password(registry)}});
    ASSERT_EQ(pulled.status, 0) << how << ": " << pulled.err;
    EXPECT_EQ(marker(server.image("team/tool:v1")), "one\n");
  }
}

TEST_P(Pull, CertificatesAreChecked) {
  RegistryServer server("debian", directory(), "tls");
  Run refused = pull(server.image("team/tool:v1"));
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "its certificate is not good"));
  Run insecure = pull(server.image("team/tool:v1"), {"--insecure-http"});
  EXPECT_TRUE(says_one_line(insecure, "its certificate is not good"));
  const std::string trust = "SSL_CERT_FILE=" + server.certificate();
  Run pulled = pull(server.image("team/tool:v1"), {}, {.environment = {trust}});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(marker(server.image("team/tool:v1")), "one\n");
}

// H08
TEST_P(Pull, DigestPinsTheImage) {
  RegistryServer server("debian", directory(), "none");
  const std::string name = server.image("team/tool");
  const std::string first = server.digest("team/tool");
  Run pinned = pull(name + "@" + first);
  ASSERT_EQ(pinned.status, 0) << pinned.err;
  EXPECT_EQ(pinned.out, name + ":sha256-" + first.substr(7, 12) + "\n");
  const std::string zeros = "@sha256:" + std::string(64, '0');
  EXPECT_EQ(pull(name + zeros).status, 125);
  ASSERT_EQ(pull(name + ":v1").status, 0);
  EXPECT_EQ(marker(name + ":v1@" + first), "one\n");
  EXPECT_EQ(carrel({"image", "rm", name + ":sha256-" + first.substr(7, 12)}).status, 0);
  EXPECT_EQ(marker(name + "@" + first), "one\n");
  Box box(GetParam(), {"--image", name + ":v1"});
  EXPECT_EQ(box.info()["settings"]["image"], name + ":v1@" + first);
  // The tag moves. What is here stays as it was until it is pulled again.
  server.move_tag();
  EXPECT_EQ(marker(name + ":v1@" + first), "one\n");
  ASSERT_EQ(pull(name + ":v1").status, 0);
  EXPECT_EQ(marker(name + ":v1"), "moved\n");
  EXPECT_EQ(box.exec({"cat", "/etc/marker"}).out, "one\n");
  for (const std::string& other : {name + ":v1@" + first, name + ":v1" + zeros}) {
    Run run = carrel({"run", "--image", other, "--", "true"});
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, "has the digest sha256:"));
  }
  Run nonsense = carrel({"run", "--image", name + "@sha256:../..", "--", "true"});
  EXPECT_TRUE(says_one_line(nonsense, "not the digest of an image"));
}

TEST_P(Pull, BrokenDownloadsGoOnWhereTheyStopped) {
  RegistryServer server("hostile", directory());
  // Within one command, when the connection breaks.
  Run pulled = pull(server.image("slow"));
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(marker(server.image("slow")), "good\n");
  std::size_t resumed = 0;
  for (const json& request : server.requests()) {
    resumed += request[1].is_string() ? 1U : 0U;
  }
  EXPECT_GE(resumed, 2U);
  ASSERT_EQ(carrel({"image", "rm", server.image("slow")}).status, 0);

  // By the next command, when this one is killed.
  write_text(directory() + "/stalls", "");
  const std::size_t before = server.requests().size();
  {
    Process process(launch({"image", "pull", server.image("slow")}));
    ASSERT_TRUE(eventually(seconds(10), [&] {
      for (const auto& entry : fs::directory_iterator(images())) {
        if (entry.path().filename() == "downloads") {
          for (const auto& file : fs::directory_iterator(entry)) {
            if (fs::file_size(file) > 100'000) {
              return true;
            }
          }
        }
      }
      return false;
    }));
    // B-42: others go on meanwhile.
    Run other = carrel({"image", "rm", "missing"}, {.timeout_seconds = 10});
    EXPECT_TRUE(says_one_line(other, "is not here"));
    process.send(SIGKILL);
    process.wait(seconds(10));
  }
  fs::remove(directory() + "/stalls");
  EXPECT_GE(count("downloads"), 1U);
  ASSERT_EQ(pull(server.image("slow")).status, 0);
  EXPECT_EQ(marker(server.image("slow")), "good\n");
  EXPECT_EQ(count("downloads"), 0U);
  std::vector<json> ranges;
  const json requests = server.requests();
  for (std::size_t i = before; i < requests.size(); ++i) {
    if (requests[i][0].get<std::string>().find("/blobs/") != std::string::npos &&
        !requests[i][1].is_null()) {
      ranges.push_back(requests[i][1]);
    }
  }
  ASSERT_FALSE(ranges.empty());
  EXPECT_NE(ranges.front(), "bytes=0-");
}

TEST_P(Pull, LayersThatAreHereAreNotFetchedAgain) {
  RegistryServer server("hostile", directory());
  ASSERT_EQ(pull(server.image("good")).status, 0);
  const std::size_t before = server.requests().size();
  ASSERT_EQ(pull(server.image("good"), {"--name", "again"}).status, 0);
  EXPECT_EQ(server.requests().size() - before, 2U);  // the manifest and the configuration
  EXPECT_EQ(marker("again"), "good\n");
  ASSERT_EQ(pull(server.image("good")).status, 0);
  EXPECT_EQ(server.requests().size() - before, 3U);  // it is the same: no configuration
}

TEST_P(Pull, PasswordsDoNotFollowRedirects) {
  RegistryServer server("hostile", directory());
  const std::string registry = "127.0.0.1:" + std::to_string(server.port());
  Run pulled = pull(server.image("redirected"), {}, {.environment = {with_password(registry)}});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  int redirected = 0;
  for (const json& request : server.requests()) {
    const std::string path = request[0];
    if (path.starts_with("/cdn/")) {
      ++redirected;
      EXPECT_TRUE(request[2].is_null()) << request;
    }
  }
  EXPECT_EQ(redirected, 3);
  Run thief = pull(server.image("token-thief"), {}, {.environment = {with_password(registry)}});
  EXPECT_EQ(thief.status, 125);
  EXPECT_TRUE(says_one_line(thief, "is not encrypted"));
}

// C13
TEST_P(Pull, HostileRegistriesAreRefused) {
  RegistryServer server("hostile", directory());
  const std::string zeros = "@sha256:" + std::string(64, '0');
  const struct {
    std::string name;
    const char* text;
  } kTable[] = {
      {"wrong-layer", "does not have the digest"},
      {"wrong-config", "does not have the digest"},
      {"other-digest" + zeros, "does not have the digest"},
      {"longer-layer", "longer than its manifest says"},
      {"shorter-layer", "shorter than its manifest says"},
      {"no-layers", "not one of an image"},
      {"not-json", "not one of an image"},
      {"thousand-layers", "more than 256 layers"},
      {"huge-layer", "its layers have more than"},
      {"negative-layer", "no sha256 digest or no size"},
      {"path-layer", "no sha256 digest or no size"},
      {"foreign-layer", "a layer is of the kind"},
      {"bomb", "layer 2 of 2"},
      {"escape", "layer 2 of 2"},
      {"whiteout", "layer 2 of 2"},
      {"endless-index", "indices without end"},
      {"rude", "?[31mrude?"},
      {"secret", "docker login"},
      {"missing", "does not have"},
  };
  for (const auto& row : kTable) {
    Run run = pull(server.image(row.name), {"--name", "evil"});
    EXPECT_EQ(run.status, 125) << row.name << run.out;
    EXPECT_TRUE(says_one_line(run, row.text)) << row.name;
    EXPECT_LT(run.err.size(), 800U) << row.name;
    for (const char* folder : {"new", "layers", "roots", "names", "downloads"}) {
      EXPECT_EQ(count(folder), 0U) << row.name << " left something in " << folder;
    }
  }
  for (const auto& entry : fs::recursive_directory_iterator(place().home(GetParam()))) {
    EXPECT_NE(entry.path().filename(), "escaped") << entry.path();
  }
}

TEST_P(Pull, PlainHttpBeyondThisHostHasToBeAskedFor) {
  RegistryServer server("hostile", directory());
  // An address that leads here and is none of loopback's.
  const std::string image = "0.0.0.0:" + std::to_string(server.port()) + "/good";
  Run refused = pull(image);
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "--insecure-http"));
  Run pulled = pull(image, {"--insecure-http"});
  EXPECT_EQ(pulled.status, 0) << pulled.err;
}

TEST_P(Pull, ProgressIsShownOnATerminal) {
  RegistryServer server("hostile", directory());
  Launch launched = launch({"image", "pull", server.image("good")});
  launched.arguments = {"-qec", launched.program + " image pull " + server.image("good"),
                        "/dev/null"};
  launched.program = "/usr/bin/script";
  Process process(launched);
  const Run run = process.wait(seconds(30));
  EXPECT_NE(run.out.find("downloading layer 1 of 2: ["), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(server.image("good")), std::string::npos);
}

// C13
TEST_P(Pull, WrongWordsAreOneLine) {
  const struct {
    std::vector<std::string> words;
    const char* text;
  } kTable[] = {
      {{"image", "pull"}, "needs one REFERENCE"},
      {{"image", "pull", "a", "b"}, "needs one REFERENCE"},
      {{"image", "pull", "../../x:latest"}, "is not an image of a registry"},
      {{"image", "pull", "x/../y"}, "is not an image of a registry"},
      {{"image", "pull", "https://h/x"}, "is not an image of a registry"},
      {{"image", "pull", "x@sha256:12"}, "its digest is not"},
      {{"image", "pull", "x\x1b[31m"}, "is not an image of a registry"},
      {{"image", "pull", "localhost:1/x"}, "Connection refused"},
      {{"image", "ls", "--insecure-http"}, "belongs to image pull"},
      {{"image", "pull", "x", "--suite", "y"}, "belongs to image build"},
      {{"image", "pull", "localhost:1/x", "--name", "../x"}, "not the name of an image"},
  };
  for (const auto& row : kTable) {
    Run run = carrel(row.words);
    EXPECT_EQ(run.status, 125) << row.text;
    EXPECT_TRUE(says_one_line(run, row.text));
  }
}

}  // namespace
}  // namespace carrel::test
