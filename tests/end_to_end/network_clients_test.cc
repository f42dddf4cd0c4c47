#include <gmock/gmock.h>
#include <unistd.h>

#include "support/clients.h"

// Programs that people use, unchanged and with no variable that names a proxy, reach what is
// allowed; for what is not, they fail soon and say so.
namespace carrel::test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class NetworkClients : public ClientsTest {};
CARREL_AS_BOTH(NetworkClients);

TEST_P(NetworkClients, Curl) {
  const Run run = client("allow=allowed.test,http:allowed.test,six.test",
                         "curl -sS --cacert /tmp/ca.pem https://allowed.test/tls\n"
                         "curl -sS http://allowed.test/plain\n"
                         "curl -sS --cacert /tmp/ca.pem https://six.test/six\n"
                         "curl -sS -x http://127.0.0.1:3128 http://allowed.test/by-proxy\n"
                         "curl -sS -x socks5h://127.0.0.1:3128 http://allowed.test/by-socks\n"
                         "head -c 3000000 /dev/zero | curl -sS -T - http://allowed.test/put\n"
                         "head -c 300000 /dev/zero > /tmp/file\n"
                         "curl -sS --data-binary @/tmp/file http://allowed.test/post\n");
  EXPECT_EQ(run.status, 0) << run.err;
  for (const char* path : {"/tls", "/plain", "six.test /six", "/by-proxy", "/by-socks", "/post"}) {
    EXPECT_THAT(run.out, HasSubstr(path)) << run.err;
  }
  const Run denied = client("allow=allowed.test",
                            "curl -sS --max-time 10 https://evil.test/ || echo failed\n"
                            "curl -sS --max-time 10 -k https://11.6.6.6/ || echo failed\n"
                            "curl -sS --max-time 10 http://allowed.test/\n");
  EXPECT_THAT(denied.out, testing::StartsWith("failed\nfailed\n")) << denied.err;
  EXPECT_THAT(denied.out, HasSubstr("carrel: the sandbox's network policy does not allow"));
  EXPECT_LT(denied.duration, patient(seconds(8)));
}

TEST_P(NetworkClients, Wget) {
  const Run run = client("allow=allowed.test,http:allowed.test",
                         "wget -qO- --ca-certificate=/tmp/ca.pem https://allowed.test/tls\n"
                         "wget -qO- http://allowed.test/plain\n"
                         "wget -qO- -T 5 -t 1 http://evil.test/ || echo failed\n");
  EXPECT_THAT(run.out, HasSubstr("/tls\n")) << run.err;
  EXPECT_THAT(run.out, HasSubstr("/plain\n")) << run.err;
  EXPECT_THAT(run.out, HasSubstr("failed")) << run.err;
}

TEST_P(NetworkClients, GitOverHttps) {
  const std::string work = place().work(As::kRoot);
  do_outside("cd " + work +
             " && git init -q source && cd source && echo text > file && git add file && "
             "git -c user.name=a -c user.email=a@b commit -qm first && "
             "git clone -q --bare . " +
             internet().files() +
             "/project.git && "
             "git -C " +
             internet().files() + "/project.git update-server-info");
  const std::string clone =
      "export GIT_SSL_CAINFO=/tmp/ca.pem GIT_TERMINAL_PROMPT=0\ncd /tmp\n"
      "git clone -q https://allowed.test/files/project.git && cat project/file\n";
  EXPECT_EQ(client("allow=allowed.test", clone).out, "text\n");
  EXPECT_NE(client("allow=a.wild.test", clone).status, 0);
}

TEST_P(NetworkClients, GitAndSshOverSsh) {
  if (::access("/usr/sbin/sshd", X_OK) != 0) {
    GTEST_SKIP() << "there is no sshd (Debian's openssh-server)";
  }
  const std::string here = internet().directory();
  do_outside("cd " + here +
             " && mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N '' -f host && "
             "ssh-keygen -q -t ed25519 -N '' -f key && "
             "git init -q source && cd source && echo text > file && git add file && "
             "git -c user.name=a -c user.email=a@b commit -qm first && "
             "git clone -q --bare . ../project.git");
  internet().run(
      "exec /usr/sbin/sshd -D -f /dev/null -p 22 -h " + here +
      "/host -o UsePAM=no -o StrictModes=no -o PidFile=none -o AuthorizedKeysFile=" + here +
      "/key.pub -o 'SetEnv=GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory "
      "GIT_CONFIG_VALUE_0=*'");
  ASSERT_TRUE(is_served("11.1.1.1", 22));
  const std::string script =
      "(umask 077; cat > /tmp/key <<'END'\n" + read_text(here + "/key").value_or("") +
      "END\n)\n"
      "export GIT_SSH_COMMAND='ssh -q -i /tmp/key -o StrictHostKeyChecking=no "
      "-o UserKnownHostsFile=/tmp/hosts -o ConnectTimeout=5'\n"
      "cd /tmp\n"
      "$GIT_SSH_COMMAND root@allowed.test 'echo in $SSH_CLIENT' </dev/null || true\n"
      "git clone -q ssh://root@allowed.test" +
      here +
      "/project.git && cat project/file && "
      "cd project && echo more > more && git add more && "
      "git -c user.name=a -c user.email=a@b commit -qm second && git push -q && echo pushed\n";
  const Run run = client("allow=tcp:allowed.test:22", script);
  EXPECT_THAT(run.out, HasSubstr("in 11.0.0.2")) << run.err;
  EXPECT_THAT(run.out, HasSubstr("text\npushed\n")) << run.err;
  EXPECT_NE(client("allow=allowed.test", script).status, 0);
}

TEST_P(NetworkClients, Pip) {
  do_outside("mkdir -p " + internet().files() + "/simple/carrelled && cd " + internet().files() +
             "/simple/carrelled && python3 -c '\n"
             "import zipfile\n"
             "with zipfile.ZipFile(\"carrelled-1.0-py3-none-any.whl\", \"w\") as wheel:\n"
             "    wheel.writestr(\"carrelled.py\", \"word = 4711\\n\")\n"
             "    info = \"carrelled-1.0.dist-info/\"\n"
             "    wheel.writestr(info + \"METADATA\", \"Metadata-Version: 2.1\\nName: carrelled\\n"
             "Version: 1.0\\n\")\n"
             "    wheel.writestr(info + \"WHEEL\", \"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n"
             "Tag: py3-none-any\\n\")\n"
             "    wheel.writestr(info + \"RECORD\", \"\")\n'");
  publish("simple/carrelled/index.html",
          "<a href=\"carrelled-1.0-py3-none-any.whl\">carrelled-1.0-py3-none-any.whl</a>");
  const std::string install =
      "/usr/bin/python3 -m pip --disable-pip-version-check install -q --no-cache-dir --retries 0 "
      "--cert /tmp/ca.pem --index-url https://allowed.test/files/simple --target /tmp/there "
      "carrelled && PYTHONPATH=/tmp/there python3 -c 'import carrelled; print(carrelled.word)'\n";
  const Run run = client("allow=allowed.test", install);
  EXPECT_EQ(run.out, "4711\n") << run.err;
  EXPECT_NE(client("allow=a.wild.test", install).status, 0);
}

TEST_P(NetworkClients, NodeFetch) {
  const std::string script =
      "export NODE_EXTRA_CA_CERTS=/tmp/ca.pem\n"
      "node -e 'fetch(\"https://allowed.test/node\").then(a => a.text()).then(console.log)"
      ".catch(e => console.log(\"failed\", e.cause.code))'\n";
  EXPECT_THAT(client("allow=allowed.test", script).out, HasSubstr("hello from allowed.test /node"));
  EXPECT_THAT(client("allow=a.wild.test", script).out, HasSubstr("failed"));
}

}  // namespace
}  // namespace carrel::test
