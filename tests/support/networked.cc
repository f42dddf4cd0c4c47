#include "support/networked.h"

namespace carrel::test {

void NetworkedTest::expect_the_egress_process_decides(const Box& box) const {
  const std::string allowed =
      inside(box, fetching("https://allowed.test/x") + fetching("http://allowed.test/y"));
  EXPECT_NE(allowed.find("hello from allowed.test /x"), std::string::npos) << allowed;
  EXPECT_NE(allowed.find("hello from allowed.test /y"), std::string::npos) << allowed;
  // Other names are not found, and nobody is asked for them; other addresses are not reached.
  const std::string others =
      inside(box, fetching("https://evil.test/") + fetching("http://169.254.169.254/") +
                      fetching("http://10.1.2.3/") + fetching("https://[2001:db8::1]/"));
  EXPECT_EQ(others.find("hello"), std::string::npos) << others;
  for (const std::string& query : internet_->queries()) {
    EXPECT_EQ(query.find("evil"), std::string::npos) << query;
  }
  // Each side can end what it says, and still hear; TLS for another name is cut off; a proxy.
  const std::string raw =
      inside(box,
             "import socket, ssl\n"
             "s = socket.create_connection(('allowed.test', 7000), 10)\n"
             "s.sendall(b'ping' * 50000)\n"
             "got = b''\n"
             "while len(got) < 200000: got += s.recv(65536)\n"
             "s.shutdown(socket.SHUT_WR)\n"
             "print('echoed', got == b'ping' * 50000, s.recv(10))\n"
             "s = socket.create_connection(('allowed.test', 443), 10)\n"
             "try:\n"
             "    ssl._create_unverified_context().wrap_socket(s, server_hostname='evil.test')\n"
             "    print('through')\n"
             "except OSError as error:\n"
             "    print('cut')\n"
             "s = socket.create_connection(('127.0.0.1', 3128), 10)\n"
             "s.sendall(b'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n')\n"
             "print(s.recv(12))\n"
             "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "try:\n"
             "    s.connect(('192.0.2.1', 9)); s.send(b'x'); s.send(b'x')\n"
             "    print('datagrams')\n"
             "except OSError:\n"
             "    print('refused')\n");
  EXPECT_EQ(raw, "echoed True b''\ncut\nb'HTTP/1.1 403'\nrefused\n");
  // It is logged, counted and can be changed.
  const Run log = carrel({"net", "log", box.id(), "--json"});
  EXPECT_NE(log.out.find("evil.test"), std::string::npos) << log.out << log.err;
  ASSERT_EQ(carrel({"net", "set", box.id(), "allow=a.wild.test"}).status, 0);
  const std::string changed =
      inside(box, fetching("https://allowed.test/") + fetching("https://a.wild.test/"));
  EXPECT_EQ(changed.find("hello from allowed"), std::string::npos) << changed;
  EXPECT_NE(changed.find("hello from a.wild.test"), std::string::npos) << changed;
}

}  // namespace carrel::test
