#include "http/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "http/client.h"
#include "http/test_server.h"

// Against a server of Python's with certificates of an authority that openssl makes.
namespace carrel::http {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kMakeCertificates = R"(cd "$1" && exec 2>/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem &&
for name in good other expired; do
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$name -keyout $name.key -out $name.csr &&
  case $name in
    other) echo subjectAltName=DNS:elsewhere.example >ext; days=2 ;;
    good) echo subjectAltName=DNS:localhost,IP:127.0.0.1 >ext; days=2 ;;
    expired) echo subjectAltName=DNS:localhost,IP:127.0.0.1 >ext; days=-1 ;;
  esac &&
  openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days $days \
    -extfile ext -out $name.pem
done)";

constexpr const char* kServer = R"(
import ssl, socket, sys, threading
cert, key, end = sys.argv[1:4]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
if end == 'old':
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers('ALL:@SECLEVEL=0')
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    raw = listener.accept()[0]
    try:
        peer = context.wrap_socket(raw, server_side=True)
        while b'\r\n\r\n' not in peer.recv(65536): pass
        if end == 'cut':
            peer.sendall(b'HTTP/1.1 200 OK\r\n\r\nall of it')
            raw = socket.socket(fileno=peer.detach()); raw.close()
        else:
            peer.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n' + b'x' * 100000)
            peer.unwrap()
    except OSError: pass
)";

class TlsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = "/tmp/carrel-tls-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::ofstream(folder_ + "/make.sh") << kMakeCertificates;
    std::ofstream(folder_ + "/server.py") << kServer;
    ASSERT_EQ(std::system(("sh " + folder_ + "/make.sh " + folder_).c_str()), 0);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void serve(const std::string& certificate, const std::string& end = "well") {
    int ends[2];
    ASSERT_EQ(::pipe(&ends[0]), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], 1);
      const std::string base = folder_ + "/" + certificate;
      ::execlp("python3", "python3", (folder_ + "/server.py").c_str(), (base + ".pem").c_str(),
               (base + ".key").c_str(), end.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    FILE* said = ::fdopen(ends[0], "r");
    ASSERT_EQ(std::fscanf(said, "%d", &port_), 1);
    std::fclose(said);
  }

  Result<Client::Document> fetch(const std::string& host) const {
    ClientOptions options;
    options.idle_patience = milliseconds(5000);
    options.trust = TlsTrust::of_file(folder_ + "/ca.pem").value();
    Client client(options);
    return client.fetch(
        {.url = parse_url("https://" + host + ":" + std::to_string(port_) + "/").value()}, 1 << 20,
        milliseconds(10'000));
  }

  static std::string folder_;
  pid_t pid_ = -1;
  int port_ = 0;
};
std::string TlsTest::folder_;

TEST_F(TlsTest, ServerWithAGoodCertificateIsHeard) {
  serve("good");
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto document = fetch(host);
    ASSERT_TRUE(document.ok()) << document.error().to_string();
    EXPECT_EQ(document.value().body.size(), 100'000U);
  }
}

TEST_F(TlsTest, CertificateForAnotherNameIsRefused) {
  serve("other");
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto document = fetch(host);
    ASSERT_FALSE(document.ok());
    EXPECT_EQ(document.error().code, Code::kDenied);
    EXPECT_THAT(document.error().message, HasSubstr("mismatch"));
  }
}

TEST_F(TlsTest, ExpiredCertificateIsRefused) {
  serve("expired");
  const auto document = fetch("localhost");
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.error().message, HasSubstr("expired"));
}

TEST_F(TlsTest, UnknownAuthorityIsRefused) {
  serve("good");
  ::setenv("SSL_CERT_FILE", (folder_ + "/other.pem").c_str(), 1);
  Client client({});
  const auto document =
      client.fetch({.url = parse_url("https://localhost:" + std::to_string(port_) + "/").value()},
                   1 << 20, milliseconds(10'000));
  ::unsetenv("SSL_CERT_FILE");
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kDenied);
}

TEST_F(TlsTest, AuthoritiesComeFromTheEnvironment) {
  serve("good");
  ::setenv("SSL_CERT_FILE", (folder_ + "/ca.pem").c_str(), 1);
  Client client({});
  const auto document =
      client.fetch({.url = parse_url("https://localhost:" + std::to_string(port_) + "/").value()},
                   1 << 20, milliseconds(10'000));
  ::unsetenv("SSL_CERT_FILE");
  EXPECT_TRUE(document.ok());
}

TEST_F(TlsTest, ConnectionThatIsCutIsNoEnd) {
  serve("good", "cut");
  const auto document = fetch("localhost");
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kUnavailable);
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  serve("good", "old");
  EXPECT_FALSE(fetch("localhost").ok());
}

TEST_F(TlsTest, ServerWithoutTlsIsToldApart) {
  TestServer server([](const TestServer::Peer& peer) {
    char bytes[512];
    (void)!::recv(peer.fd, &bytes[0], sizeof bytes, 0);
    peer.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  });
  port_ = server.port();
  const auto document = fetch("127.0.0.1");
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace carrel::http
