#pragma once

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "support/internet.h"
#include "support/with_engine.h"

namespace carrel::test {

// An engine that an ordinary user started for himself. On a host with control groups of version 1
// there are none for it.
template <DockerEngine::Kind kind>
class RootlessEngine : public WithEngine<CarrelTest, kind> {
 protected:
  using Engine = WithEngine<CarrelTest, kind>;
  using Engine::carrel;
  using Engine::docker;
  using Engine::engine_;
  using Engine::file;
  using Engine::GetParam;
  using Engine::nothing_left;

  void use_a_long_lived_one() const {
    const std::string data = file("data.txt", "from outside\n");
    const Box box = this->box();
    EXPECT_EQ(box.sh("x=1; cd /tmp").status, 0);
    EXPECT_EQ(box.sh("echo $x $PWD").out, "1 /tmp\n");
    EXPECT_EQ(box.exec({"sh", "-c", "exit 3"}).status, 3);
    EXPECT_EQ(carrel({"cp", data, box.id() + ":/workspace/here"}).status, 0);
    EXPECT_EQ(box.sh("cat /workspace/here; id -un").out, "from outside\nagent\n");
    EXPECT_NE(engine_->containers(), "");
    EXPECT_EQ(carrel({"pause", box.id()}).status, 0);
    EXPECT_EQ(carrel({"resume", box.id()}).status, 0);
    EXPECT_EQ(box.sh("echo $x").out, "1\n");
    EXPECT_EQ(box.remove().status, 0);
    EXPECT_TRUE(nothing_left());
  }

  // On the host it is the user's own process, without a capability there or in any namespace.
  void look_at_its_processes() const {
    const Box box = this->box();
    const std::string status =
        read_text("/proc/" + std::to_string(box.first_process()) + "/status").value_or("");
    const std::string id = std::to_string(Place::user_id());
    EXPECT_NE(status.find("\nUid:\t" + id + "\t" + id + "\t" + id + "\t" + id), std::string::npos);
    EXPECT_NE(status.find("\nCapEff:\t0000000000000000"), std::string::npos) << status;
    EXPECT_NE(status.find("\nCapBnd:\t0000000000000000"), std::string::npos) << status;
    EXPECT_NE(status.find("\nNoNewPrivs:\t1"), std::string::npos) << status;
    EXPECT_EQ(box.sh("cat /proc/sys/kernel/hostname > /dev/null; unshare -r true").status, 1);
  }

  void use_files_of_the_host() const {
    EXPECT_EQ(docker({"run", "--workspace", "w", "--", "sh", "-c", "echo kept > a"}).status, 0);
    EXPECT_EQ(docker({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
    EXPECT_EQ(carrel({"run", "--workspace", "w", "--", "cat", "a"}).out, "kept\n");
    const std::string data = place().work(GetParam()) + "/data";
    ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
    place().give(data, GetParam());
    const Run written =
        docker({"run", "--mount", data + ":/data:rw", "--", "sh", "-c", "echo x > /data/file"});
    EXPECT_EQ(written.status, 0) << written.err;
    struct stat info{};
    EXPECT_EQ(::stat((data + "/file").c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, Place::user_id());
    EXPECT_NE(docker({"run", "--mount", data + ":/data", "--", "touch", "/data/no"}).status, 0);
    const Run root =
        docker({"run", "--writable-root", "--", "sh", "-c", "echo x > /usr/x && cat /usr/x"});
    EXPECT_EQ(root.out, "x\n") << root.err;
  }

  // Here the engine has no control groups: the guest holds them, and that is told and not enough
  // for whoever requires more.
  void exceed_limits() const {
    const Run memory =
        docker({"run", "--memory", "64m", "--", "python3", "-c", "x = b'x' * 400000000"});
    EXPECT_NE(memory.status, 0);
    EXPECT_NE(memory.err.find("out of memory"), std::string::npos) << memory.err;
    const Run pids = docker(
        {"run", "--pids", "20", "--", "bash", "-c", "for i in $(seq 60); do sleep 5 & done; wait"});
    EXPECT_NE(pids.err.find("fork"), std::string::npos) << pids.err;
    for (const char* limit : {"memory", "cpu"}) {
      const Run required = docker({"run", "--require", limit, "--", "true"});
      EXPECT_EQ(required.status, 125);
      EXPECT_TRUE(says_one_line(required, "the rootless engine has no control groups"))
          << required.err;
    }
    EXPECT_EQ(docker({"run", "--require", "pids", "--", "true"}).status, 0);
    const std::string told = this->box().info().dump();
    EXPECT_NE(told.find("watchdog"), std::string::npos) << told;
    EXPECT_NE(told.find("affinity"), std::string::npos) << told;
  }

  void reach_what_is_allowed_only() const {
    const Internet internet(place().work(As::kRoot) + "/internet");
    const std::string code =
        "import ssl, urllib.request\n"
        "context = ssl.create_default_context(cadata='''" +
        internet.authority_certificate() +
        "''')\n"
        "try: print(urllib.request.urlopen('https://allowed.test/', timeout=10, "
        "context=context).status)\n"
        "except Exception as error: print('failed')\n";
    const auto fetched = [&](const std::string& allowed) {
      return docker({"run", "--network", allowed, "--", "python3", "-c", code});
    };
    const Run some = fetched("allow=allowed.test");
    EXPECT_EQ(some.out, "200\n") << some.err;
    EXPECT_EQ(fetched("allow=other.test").out, "failed\n");
    const Run none =
        docker({"run", "--", "sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"});
    EXPECT_EQ(none.out, "lo\n") << none.err;
  }

  // Neither root nor anybody else: its containers cannot have their ids.
  void is_of_no_use_to_others() const {
    const Run run = test::carrel(As::kRoot, {"run", "--backend", "docker", "--", "true"});
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, "a rootless one of somebody else's")) << run.err;
  }
};

}  // namespace carrel::test
