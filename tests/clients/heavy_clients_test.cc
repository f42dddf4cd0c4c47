#include <gmock/gmock.h>

#include "support/clients.h"

// The same as network_clients_test.cc, for clients and servers that nobody has by chance: Java, Go,
// npm, apt, Python's requests and aiohttp, PostgreSQL, redis.
namespace carrel::test {
namespace {

using testing::HasSubstr;

class HeavyClients : public ClientsTest {
 protected:
  // Compilers and virtual machines want more than the defaults.
  const std::vector<std::string> large_ = {"--memory", "3g", "--tmp", "2g", "--pids", "500"};
};
CARREL_AS_BOTH(HeavyClients);

TEST_P(HeavyClients, JavaHttpClient) {
  const std::string script = R"(cat > /tmp/Get.java <<'END'
import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.*;
public class Get {
  public static void main(String[] words) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null);
    try (InputStream in = new FileInputStream("/tmp/ca.pem")) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    HttpClient client = HttpClient.newBuilder().sslContext(context).build();
    System.out.println(client.send(HttpRequest.newBuilder(URI.create("https://allowed.test/java")).build(),
                                   HttpResponse.BodyHandlers.ofString()).body());
  }
}
END
/data/jdk/bin/java /tmp/Get.java
)";
  // Debian keeps a part of the virtual machine in /etc, of which a sandbox has its own.
  const std::string machine = place().work(GetParam()) + "/jdk";
  do_outside("jlink --add-modules java.base,java.net.http,jdk.compiler,jdk.crypto.ec --output " +
             machine);
  place().give(machine, GetParam());
  std::vector<std::string> options = large_;
  options.insert(options.end(), {"--mount", machine + ":/data/jdk"});
  const Run run = client("allow=allowed.test", script, options);
  EXPECT_THAT(run.out, HasSubstr("hello from allowed.test /java")) << run.err;
  EXPECT_NE(client("allow=a.wild.test", script, options).status, 0);
}

// Where TLS ends in the egress process, a Java client that was told nothing trusts the sandbox's
// authority.
TEST_P(HeavyClients, JavaHttpClientWhereTlsIsEnded) {
  internet().trust();
  const std::string script = R"(cat > /tmp/Get.java <<'END'
import java.net.URI;
import java.net.http.*;
public class Get {
  public static void main(String[] words) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    for (String path : new String[] {"java", "other"}) {
      HttpRequest request = HttpRequest.newBuilder(URI.create("https://allowed.test/" + path)).build();
      HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
      System.out.println(answer.statusCode() + " " + answer.body());
    }
  }
}
END
/data/jdk/bin/java /tmp/Get.java
)";
  const std::string machine = place().work(GetParam()) + "/jdk";
  do_outside("jlink --add-modules java.base,java.net.http,jdk.compiler,jdk.crypto.ec --output " +
             machine);
  place().give(machine, GetParam());
  std::vector<std::string> options = large_;
  options.insert(options.end(), {"--mount", machine + ":/data/jdk"});
  const Run run = client("allow=https:GET:allowed.test/java", script, options);
  EXPECT_THAT(run.out, HasSubstr("200 hello from allowed.test /java")) << run.err;
  EXPECT_THAT(run.out, HasSubstr("403 carrel: the sandbox's network policy")) << run.err;
}

TEST_P(HeavyClients, GoNetHttp) {
  const std::string script = R"(export PATH=$PATH:/usr/local/go/bin
export HOME=/tmp GOCACHE=/tmp/cache GOPATH=/tmp/go GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
mkdir -p /tmp/get && cd /tmp/get
echo 'module get' > go.mod
cat > main.go <<'END'
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get("https://allowed.test/go")
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	body, _ := io.ReadAll(answer.Body)
	fmt.Print(string(body))
}
END
go build -o get .
SSL_CERT_FILE=/tmp/ca.pem ./get
)";
  const Run run = client("allow=allowed.test", script, large_);
  EXPECT_THAT(run.out, HasSubstr("hello from allowed.test /go")) << run.err;
}

TEST_P(HeavyClients, PythonRequestsAndAiohttp) {
  const std::string script = R"(/usr/bin/python3 - <<'END'
import asyncio, ssl
import aiohttp, requests
session = requests.Session()
for path in ("one", "two"):
    print(session.get("https://allowed.test/" + path, verify="/tmp/ca.pem").text)
async def main():
    context = ssl.create_default_context(cafile="/tmp/ca.pem")
    async with aiohttp.ClientSession() as client:
        for path in ("three", "four"):
            async with client.get("https://allowed.test/" + path, ssl=context) as answer:
                print(await answer.text())
asyncio.run(main())
END
)";
  const Run run = client("allow=allowed.test", script);
  for (const char* path : {"/one", "/two", "/three", "/four"}) {
    EXPECT_THAT(run.out, HasSubstr(path)) << run.err;
  }
  EXPECT_NE(client("allow=a.wild.test", script).status, 0);
}

TEST_P(HeavyClients, Npm) {
  const std::string place = internet().files() + "/npm";
  do_outside("mkdir -p " + place + "/package && cd " + place +
             " && echo '{\"name\":\"carrelled\",\"version\":\"1.0.0\"}' > package/package.json && "
             "echo 'module.exports = 4711' > package/index.js && tar czf carrelled.tgz package");
  publish("npm/carrelled",
          R"({"name":"carrelled","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{)"
          R"("name":"carrelled","version":"1.0.0","dist":{)"
          R"("tarball":"https://allowed.test/files/npm/carrelled.tgz"}}}})");
  const std::string script =
      "export HOME=/tmp\nmkdir /tmp/project && cd /tmp/project\n"
      "npm install --no-audit --no-fund --no-update-notifier --fetch-retries 0 "
      "--cafile /tmp/ca.pem --registry https://allowed.test/files/npm/ carrelled >&2\n"
      "node -e 'console.log(require(\"carrelled\"))'\n";
  const Run run = client("allow=allowed.test", script, large_);
  EXPECT_THAT(run.out, HasSubstr("4711")) << run.err;
  EXPECT_NE(client("allow=a.wild.test", script, large_).status, 0);
}

TEST_P(HeavyClients, Apt) {
  const std::string place = internet().files() + "/apt";
  do_outside("mkdir -p " + place + "/tree/DEBIAN && cd " + place +
             " && printf 'Package: carrelled\\nVersion: 1\\nArchitecture: all\\n"
             "Maintainer: a <a@b>\\nDescription: x\\n' > tree/DEBIAN/control && "
             "dpkg-deb -b tree carrelled_1_all.deb && rm -r tree && "
             "{ dpkg-deb -f carrelled_1_all.deb; echo Filename: ./carrelled_1_all.deb; "
             "echo Size: $(stat -c %s carrelled_1_all.deb); "
             "echo SHA256: $(sha256sum < carrelled_1_all.deb | cut -d' ' -f1); } > Packages");
  const std::string script =
      "mkdir -p /tmp/apt/lists/partial /tmp/apt/archives/partial && cd /tmp/apt && touch status\n"
      "echo 'deb [trusted=yes] http://allowed.test/files/apt ./' > list\n"
      "apt() { apt-get -o Dir::Etc::SourceList=/tmp/apt/list -o Dir::Etc::SourceParts=/dev/null "
      "-o Dir::State=/tmp/apt -o Dir::State::status=/tmp/apt/status -o Dir::Cache=/tmp/apt "
      "-o APT::Sandbox::User= -o Acquire::Retries=0 \"$@\"; }\n"
      "apt update >&2 && apt download carrelled >&2 && ls *.deb\n";
  const Run run = client("allow=http:allowed.test", script);
  EXPECT_EQ(run.out, "carrelled_1_all.deb\n") << run.err;
  EXPECT_NE(client("allow=a.wild.test", script).out, "carrelled_1_all.deb\n");
}

TEST_P(HeavyClients, PostgreSql) {
  const std::string place = internet().directory() + "/database";
  do_outside("mkdir " + place + " && chown postgres " + place);
  const std::string as = "setpriv --reuid postgres --regid postgres --clear-groups ";
  internet().run("programs=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); cd " + place + " && " +
                 as + "$programs/initdb -A trust -D " + place +
                 "/data && echo 'host all all all trust' >> " + place +
                 "/data/pg_hba.conf && exec " + as + "$programs/postgres -D " + place +
                 "/data -h 0.0.0.0 -k " + place);
  ASSERT_TRUE(is_served("11.1.1.1", 5432));
  const std::string script =
      "psql -At 'host=allowed.test user=postgres connect_timeout=5' -c 'select 40 + 2' "
      "-c \"select sum(n) from generate_series(1, 100000) n\"\n";
  const Run run = client("allow=tcp:allowed.test:5432", script);
  EXPECT_EQ(run.out, "42\n5000050000\n") << run.err;
  EXPECT_NE(client("allow=allowed.test", script).status, 0);
}

TEST_P(HeavyClients, Redis) {
  internet().run("exec redis-server --bind 0.0.0.0 --protected-mode no --save '' --port 6379");
  ASSERT_TRUE(is_served("11.1.1.1", 6379));
  const std::string script =
      "redis-cli -h allowed.test set word 4711 && redis-cli -h allowed.test get word\n";
  const Run run = client("allow=tcp:allowed.test:6379", script);
  EXPECT_EQ(run.out, "OK\n4711\n") << run.err;
  EXPECT_NE(client("allow=allowed.test", script).out, "OK\n4711\n");
}

}  // namespace
}  // namespace carrel::test
