#include <gmock/gmock.h>

#include "attacks/egress_attack.h"

// Attacks in what a connection says about itself: TLS, HTTP, proxies.
namespace carrel::test {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::SizeIs;

class EgressBytesAttack : public EgressAttack {};
CARREL_AS_BOTH(EgressBytesAttack);

TEST_P(EgressBytesAttack, D15_TheProxyOpensTunnelsToWhatIsAllowedOnly) {
  const std::string code =
      "for target in ('evil.test:443', '11.6.6.6:443', '11.1.1.1:443', 'allowed.test:22',\n"
      "               'allowed.test:25', 'allowed.test:80', 'allowed.test', 'allowed.test:',\n"
      "               'allowed.test:0', 'allowed.test:443@evil.test:443', 'allowed.test:0443',\n"
      "               'evil.test:443@allowed.test:443', 'allowed.test%00.evil.test:443',\n"
      "               'allowed.test:65979', 'allowed.test:-443', 'allowed.test:443:443',\n"
      "               '[allowed.test]:443', 'allowed.test\\0.evil.test:443', "
      "'://allowed.test:443',\n"
      "               'allowed.test:443/', 'allowed.test:443#evil', 'allowed.test :443', "
      "'*:443'):\n"
      "    attempt(target, tunnelled, target)\n"
      "attempt('another host in Host', lambda: b' 200 ' in proxied(\n"
      "    b'CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n')[0])\n"
      "attempt('a body', tunnelled, 'allowed.test:443', 'Content-Length: 5\\r\\n')\n"
      "attempt('allowed', tunnelled, 'allowed.test:443')\n"
      "attempt('ALLOWED', tunnelled, 'ALLOWED.test.:443')\n"
      "def inside_tunnel(name):\n"
      "    sock = socket.create_connection(('127.0.0.1', 3128), 3)\n"
      "    sock.sendall(b'CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: "
      "allowed.test:443\\r\\n\\r\\n')\n"
      "    return b' 200 ' in sock.recv(1000) and secured('', name, sock=sock)\n"
      "attempt('tls for another', inside_tunnel, 'evil.test')\n"
      "attempt('tls for it', inside_tunnel, 'allowed.test')\n";
  EXPECT_EQ(through("allow=allowed.test", code), (Names{"allowed", "ALLOWED", "tls for it"}));
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 443"});
}

TEST_P(EgressBytesAttack, D17_SocksTakesNamesThatAreNames) {
  const std::string code =
      "for name in (b'evil.test\\0.allowed.test', b'allowed.test\\0.evil.test', "
      "b'evil.test/allowed.test',\n"
      "             b'evil.test allowed.test', b'evil.test@allowed.test', "
      "b'allowed.test@evil.test',\n"
      "             b'a' * 255, b'', b'\\r\\n', b'allowed.test\\n', b'evil.test', "
      "b'\\xff.allowed.test',\n"
      "             b'11.1.1.1', b'[11.1.1.1]', b'allowed.test:443'):\n"
      "    attempt(repr(name)[:30], lambda: socks(name, 7000) == 0)\n"
      "for command in (0, 2, 3, 9):\n"
      "    attempt('command %d' % command, lambda: socks(b'allowed.test', 7000, command) == 0)\n"
      "attempt('address', lambda: socks(socket.inet_aton('11.6.6.6'), 7000, kind=1) == 0)\n"
      "attempt('address6', lambda: socks(socket.inet_pton(10, '2400:1111::1'), 7000, kind=4) == "
      "0)\n"
      "attempt('kind', lambda: socks(b'', 7000, kind=7) == 0)\n"
      "port = struct.pack('>H', 7000)\n"
      "attempt('socks4', lambda: b'\\0\\x5a' in said('127.0.0.1', 3128,\n"
      "        b'\\4\\1' + port + b'\\x0b\\1\\1\\1\\0', 2))\n"
      "attempt('socks4a', lambda: b'\\0\\x5a' in said('127.0.0.1', 3128,\n"
      "        b'\\4\\1' + port + b'\\0\\0\\0\\1\\0allowed.test\\0', 2))\n"
      "attempt('password', lambda: said('127.0.0.1', 3128, b'\\5\\1\\2', 2) != b'\\5\\xff')\n"
      "attempt('other port', lambda: socks(b'allowed.test', 7001) == 0)\n"
      "attempt('allowed', lambda: socks(b'allowed.test', 7000) == 0)\n"
      "attempt('Allowed.', lambda: socks(b'Allowed.test.', 7000) == 0)\n";
  EXPECT_EQ(through("allow=tcp:allowed.test:7000", code), (Names{"allowed", "Allowed."}));
  EXPECT_THAT(through("full",
                      "attempt('address', lambda: socks(socket.inet_aton('11.6.6.6'), 7000,\n"
                      "        kind=1) == 0)\n"),
              Contains("address"));
}

// Makes the bytes of a ClientHello with the names that are asked for.
constexpr const char* kHellos =
    "def hello(*names, pad=0, twice=False):\n"
    "    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
    "    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()\n"
    "    context.check_hostname = False\n"
    "    context.verify_mode = ssl.CERT_NONE\n"
    "    tls = context.wrap_bio(into, out, server_hostname='placeholder.test')\n"
    "    try:\n"
    "        tls.do_handshake()\n"
    "    except ssl.SSLWantReadError:\n"
    "        pass\n"
    "    data = out.read()[9:]\n"
    "    at = 34\n"
    "    at += 1 + data[at]\n"
    "    at += 2 + struct.unpack('>H', data[at:at + 2])[0]\n"
    "    at += 1 + data[at]\n"
    "    rest, kept = data[at + 2:], b''\n"
    "    while rest:\n"
    "        kind, size = struct.unpack('>HH', rest[:4])\n"
    "        if kind != 0:\n"
    "            kept += rest[:4 + size]\n"
    "        rest = rest[4 + size:]\n"
    "    if names:\n"
    "        rows = b''.join(b'\\0' + struct.pack('>H', len(one)) + one for one in names)\n"
    "        body = struct.pack('>H', len(rows)) + rows\n"
    "        server = struct.pack('>HH', 0, len(body)) + body\n"
    "        kept = server + (server.replace(names[0], b'evil.test'[:len(names[0])].ljust(\n"
    "            len(names[0]), b'x')) if twice else b'') + kept\n"
    "    if pad:\n"
    "        kept += struct.pack('>HH', 21, pad) + b'\\0' * pad\n"
    "    data = data[:at] + struct.pack('>H', len(kept)) + kept\n"
    "    return b'\\1' + struct.pack('>I', len(data))[1:] + data\n"
    "def records(message, size=16000):\n"
    "    return b''.join(b'\\x16\\3\\1' + struct.pack('>H', len(message[i:i + size])) +\n"
    "                    message[i:i + size] for i in range(0, len(message), size))\n"
    "def greeted(data, host='allowed.test', piece=None):\n"
    "    with socket.create_connection((host, 443), 5) as sock:\n"
    "        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
    "        sock.settimeout(5 * SLOWNESS)\n"
    "        if piece:\n"
    "            for i in range(0, len(data), piece):\n"
    "                sock.sendall(data[i:i + piece])\n"
    "        else:\n"
    "            sock.sendall(data)\n"
    "        return sock.recv(3)[:1] == b'\\x16'\n"
    "good = b'allowed.test'\n";

TEST_P(EgressBytesAttack, D19_TlsIsReadOrRefused) {
  const std::string code =
      std::string(kHellos) +
      "attempt('it', greeted, records(hello(good)))\n"
      "attempt('in bytes', greeted, records(hello(good)), 'allowed.test', 1)\n"
      "attempt('in records', greeted, records(hello(good), 20))\n"
      "attempt('in records and bytes', greeted, records(hello(good), 37), 'allowed.test', 1)\n"
      "attempt('upper case', greeted, records(hello(b'ALLOWED.test')))\n"
      "attempt('no name', greeted, records(hello()))\n"
      "attempt('an address', greeted, records(hello(b'11.1.1.1')))\n"
      "attempt('evil', greeted, records(hello(b'evil.test')))\n"
      "attempt('evil in records', greeted, records(hello(b'evil.test'), 20), 'allowed.test', 1)\n"
      "attempt('two names', greeted, records(hello(good, b'evil.test')))\n"
      "attempt('two names, other order', greeted, records(hello(b'evil.test', good)))\n"
      "attempt('two extensions', greeted, records(hello(good, twice=True)))\n"
      "attempt('nul', greeted, records(hello(b'evil.test\\0allowed.test')))\n"
      "attempt('nul at the end', greeted, records(hello(b'allowed.test\\0')))\n"
      "attempt('space', greeted, records(hello(b' allowed.test')))\n"
      "attempt('16 KiB', greeted, records(hello(b'evil.test', pad=16300)))\n"
      "attempt('60 KiB', greeted, records(hello(b'evil.test', pad=60000)))\n"
      "attempt('records without end', greeted, records(hello(good), 1))\n"
      "attempt('not tls', answers, 'allowed.test', 443)\n"
      "attempt('bytes', lambda: said('allowed.test', 443, b'\\0' * 200 + records(hello(good)), "
      "2))\n"
      "attempt('version 2', lambda: said('allowed.test', 443, b'\\x80\\x2e\\1\\3\\1' + b'\\0' * "
      "80, 2))\n"
      "attempt('an alert first', greeted, b'\\x15\\3\\1\\0\\2\\1\\0' + records(hello(good)))\n"
      "attempt('an empty record first', greeted, b'\\x16\\3\\1\\0\\0' + "
      "records(hello(b'evil.test')))\n"
      "attempt('nothing', lambda: said('allowed.test', 443, b'', 2))\n";
  EXPECT_EQ(through("allow=allowed.test", code),
            (Names{"it", "in bytes", "in records", "in records and bytes", "upper case"}));
  // Where any bytes are allowed, the same ones get through.
  EXPECT_THAT(through("allow=tcp:allowed.test:443", code),
              testing::IsSupersetOf(Names{"it", "no name", "evil", "an address"}));
}

TEST_P(EgressBytesAttack, D19_ASlowHelloIsCutOff) {
  const std::string code = std::string(kHellos) +
                           "def slowly():\n"
                           "    with socket.create_connection(('allowed.test', 443), 5) as sock:\n"
                           "        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
                           "        begun = time.time()\n"
                           "        for byte in records(hello(good)):\n"
                           "            sock.sendall(bytes([byte]))\n"
                           "            time.sleep(0.25)\n"
                           "            if time.time() - begun > 14:\n"
                           "                return True\n"
                           "attempt('still open', slowly)\n";
  EXPECT_EQ(through("allow=allowed.test", code), Names{});
  EXPECT_EQ(reached(), Names{});
}

TEST_P(EgressBytesAttack, D21_EveryRequestIsForTheHostThatIsDialled) {
  const std::string code =
      "def heads(*lines):\n"
      "    return '\\r\\n'.join(lines).encode('latin-1') + b'\\r\\n\\r\\n'\n"
      "def tried(name, data):\n"
      "    attempt(name, answers, 'allowed.test', 80, data)\n"
      "end = 'Connection: close'\n"
      "tried('evil', request('evil.test'))\n"
      "tried('absolute evil', heads('GET http://evil.test/ HTTP/1.1', 'Host: allowed.test', end))\n"
      "tried('absolute, evil host', heads('GET http://allowed.test/ HTTP/1.1', 'Host: evil.test', "
      "end))\n"
      "tried('two hosts', heads('GET / HTTP/1.1', 'Host: allowed.test', 'Host: evil.test', end))\n"
      "tried('two same hosts', heads('GET / HTTP/1.1', 'Host: allowed.test', 'Host: allowed.test', "
      "end))\n"
      "tried('another port', heads('GET / HTTP/1.1', 'Host: allowed.test:81', end))\n"
      "tried('no host', heads('GET / HTTP/1.1', end))\n"
      "tried('no host, 1.0', heads('GET / HTTP/1.0', end))\n"
      "tried('folded', heads('GET / HTTP/1.1', 'Host: allowed.test', ' evil.test', end))\n"
      "tried('folded first', heads('GET / HTTP/1.1', ' Host: evil.test', 'Host: allowed.test', "
      "end))\n"
      "tried('tab', heads('GET / HTTP/1.1', 'Host: allowed.test\\tevil', end))\n"
      "tried('space before colon', heads('GET / HTTP/1.1', 'Host : evil.test', 'Host: "
      "allowed.test', end))\n"
      "tried('comma', heads('GET / HTTP/1.1', 'Host: allowed.test, evil.test', end))\n"
      "tried('user', heads('GET / HTTP/1.1', 'Host: allowed.test@evil.test', end))\n"
      "tried('empty', heads('GET / HTTP/1.1', 'Host: ', end))\n"
      "tried('nul', heads('GET / HTTP/1.1', 'Host: allowed.test\\0', end))\n"
      "tried('its port', heads('GET / HTTP/1.1', 'Host: allowed.test:80', end))\n"
      "tried('it', request('allowed.test'))\n"
      "tried('its case', request('Allowed.TEST.'))\n"
      "tried('absolute', heads('GET http://allowed.test/x HTTP/1.1', 'Host: allowed.test', end))\n";
  EXPECT_EQ(through("allow=http:allowed.test", code),
            (Names{"its port", "it", "its case", "absolute"}));
  for (const nlohmann::json& one : internet().requests()) {
    EXPECT_THAT(one["host"], testing::AnyOf("allowed.test", "allowed.test:80"));
  }
  EXPECT_THAT(through("allow=tcp:allowed.test:80", code),
              testing::IsSupersetOf(Names{"evil", "two hosts", "tab"}));
}

TEST_P(EgressBytesAttack, D23_NoRequestHidesInAnother) {
  const std::string code =
      "post = 'POST / HTTP/1.1\\r\\nHost: allowed.test\\r\\n'\n"
      "hidden = 'GET /hidden HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n'\n"
      "size = 'Content-Length: %d\\r\\n'\n"
      "chunked = 'Transfer-Encoding: chunked\\r\\n'\n"
      "for name, text in (\n"
      "    ('length and chunks', post + size % 5 + chunked + '\\r\\n0\\r\\n\\r\\n' + hidden),\n"
      "    ('chunks and length', post + chunked + size % len(hidden) + '\\r\\n0\\r\\n\\r\\n' + "
      "hidden),\n"
      "    ('other coding', post + 'Transfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n' + "
      "hidden),\n"
      "    ('two codings', post + chunked + 'Transfer-Encoding: x\\r\\n\\r\\n0\\r\\n\\r\\n' + "
      "hidden),\n"
      "    ('coding with space', post + 'Transfer-Encoding : chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + "
      "hidden),\n"
      "    ('coding with tab', post + 'Transfer-Encoding:\\x0bchunked\\r\\n\\r\\n0\\r\\n\\r\\n' + "
      "hidden),\n"
      "    ('folded coding', post + 'X: y\\r\\n Transfer-Encoding: "
      "chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + hidden),\n"
      "    ('two lengths', post + size % 0 + size % len(hidden) + '\\r\\n' + hidden),\n"
      "    ('list of lengths', post + 'Content-Length: 0, %d\\r\\n\\r\\n' % len(hidden) + "
      "hidden),\n"
      "    ('signed length', post + 'Content-Length: +0\\r\\n\\r\\n' + hidden),\n"
      "    ('negative length', post + 'Content-Length: -1\\r\\n\\r\\n' + hidden),\n"
      "    ('huge length', post + 'Content-Length: 99999999999999999999\\r\\n\\r\\n' + hidden),\n"
      "    ('extension', post + chunked + '\\r\\n1;x=y\\r\\na\\r\\n0\\r\\n\\r\\n' + hidden),\n"
      "    ('chunk size', post + chunked + '\\r\\n0x1\\r\\na\\r\\n0\\r\\n\\r\\n' + hidden),\n"
      "    ('chunk size too large', post + chunked + '\\r\\n10000000000000000\\r\\n' + hidden),\n"
      "    ('chunk without end', post + chunked + '\\r\\n1\\r\\nab\\r\\n0\\r\\n\\r\\n' + hidden),\n"
      "    ('trailer', post + chunked + '\\r\\n0\\r\\nHost: evil.test\\r\\n\\r\\n' + hidden),\n"
      "    ('bare line feed', 'GET / HTTP/1.1\\nHost: allowed.test\\n\\n' + hidden),\n"
      "    ('bare return', 'GET / HTTP/1.1\\r\\nHost: allowed.test\\rX: y\\r\\n\\r\\n' + hidden),\n"
      "    ('connection', post + 'Connection: content-length\\r\\n' + size % 0 + '\\r\\n' + "
      "hidden),\n"
      "    ('pipelined', 'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n' + hidden),\n"
      "    ('old', post.replace('1.1', '1.0') + chunked + '\\r\\n0\\r\\n\\r\\n' + hidden)):\n"
      "    # Where the head can be read in two ways, nothing of it goes out.\n"
      "    if name not in ('extension', 'chunk size', 'chunk size too large', 'chunk without "
      "end',\n"
      "                    'trailer', 'pipelined'):\n"
      "        text = text.replace(' / HTTP', ' /ambiguous HTTP', 1)\n"
      "    attempt(name, lambda: b'/hidden' in said('allowed.test', 80, text.encode('latin-1'), "
      "2))\n"
      "body = hidden.replace('close', 'keep-alive')\n"
      "attempt('in a body', lambda: said('allowed.test', 80,\n"
      "        (post + 'Connection: close\\r\\n' + size % len(body) + '\\r\\n' + body).encode(), "
      "2\n"
      "        ).count(b'hello from') == 1)\n";
  EXPECT_EQ(through("allow=http:allowed.test", code), Names{"in a body"});
  for (const nlohmann::json& one : internet().requests()) {
    EXPECT_EQ(one["path"], "/") << one;
    EXPECT_EQ(one["host"], "allowed.test");
  }
  EXPECT_THAT(through("allow=tcp:allowed.test:80", code),
              testing::IsSupersetOf(Names{"pipelined", "two lengths"}));
}

TEST_P(EgressBytesAttack, D23_ADeniedRequestBehindAnAnswerThatNobodyReadsHoldsNothing) {
  file("carrel.toml", "[sandbox]\nnetwork_connections = 4\n");
  const std::string id = create({"--network", "allow=http:allowed.test"});
  const std::string code =
      "for _ in range(6):\n"
      "    sock = socket.socket()\n"
      "    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)\n"
      "    sock.connect(('allowed.test', 80))\n"
      "    sock.sendall(b'GET /bytes/30000000 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')\n"
      "    time.sleep(0.4)\n"
      "    try:\n"
      "        sock.sendall(b'GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')\n"
      "        time.sleep(0.6)\n"
      "    except OSError:\n"
      "        pass\n"
      "    sock.close()\n"
      "attempt('there is room for another', answers, 'allowed.test')\n";
  EXPECT_EQ(through_in(id, code), Names{"there is room for another"});
  EXPECT_TRUE(eventually(std::chrono::seconds(3), [&] {
    return carrel({"net", "usage", "--json", id}).out.find("\"live\":0") != std::string::npos;
  })) << carrel({"net", "usage", "--json", id}).out;
}

TEST_P(EgressBytesAttack, D23_TheAnswerToOneRequestIsNotReadAsThatToAnother) {
  const std::string code =
      "two = (b'GET /drip/5 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'\n"
      "       b'GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')\n"
      "reply = said('allowed.test', 80, two, 3)\n"
      "attempt('the second was answered first',\n"
      "        lambda: b'403' in reply and reply.index(b'403') < reply.rindex(b'x' * 1000))\n"
      "alone = said('allowed.test', 80, two.split(b'\\r\\n\\r\\n')[1] + b'\\r\\n\\r\\n', 3)\n"
      "attempt('alone it is told', lambda: b'403 Forbidden' in alone and b'evil.test' in alone)\n"
      "import http.client\n"
      "connection = http.client.HTTPConnection('allowed.test', timeout=5 * SLOWNESS)\n"
      "def asked(host):\n"
      "    connection.request('GET', '/x', headers={'Host': host})\n"
      "    return connection.getresponse().read()\n"
      "attempt('first', lambda: b'hello from' in asked('allowed.test'))\n"
      "attempt('second', lambda: b'hello from' in asked('allowed.test'))\n"
      "attempt('third', lambda: b'hello from' in asked('evil.test'))\n";
  EXPECT_EQ(through("allow=http:allowed.test", code),
            (Names{"alone it is told", "first", "second"}));
}

TEST_P(EgressBytesAttack, D24_WhatFollowsAnUpgradeIsStillForThatHost) {
  const std::string code =
      "def tried(name, data):\n"
      "    attempt(name, lambda: b'/hidden' in said('allowed.test', 80, data, 2))\n"
      "hidden = b'GET /hidden HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n'\n"
      "def upgrade(what):\n"
      "    return ('GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: Upgrade, "
      "HTTP2-Settings\\r\\n'\n"
      "            'Upgrade: %s\\r\\nHTTP2-Settings: AAMAAABkAARAAAAA\\r\\n\\r\\n' % "
      "what).encode()\n"
      "tried('h2c', upgrade('h2c') + hidden)\n"
      "tried('websocket', upgrade('websocket') + hidden)\n"
      "tried('both', upgrade('h2c, websocket') + hidden)\n"
      "tried('h2 at once', b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + hidden)\n"
      "tried('0.9', b'GET /hidden\\r\\n')\n"
      "tried('0.9 to evil', b'GET http://evil.test/hidden\\r\\n')\n"
      "tried('2.0', b'GET /hidden HTTP/2.0\\r\\nHost: evil.test\\r\\n\\r\\n')\n"
      "tried('trace', b'TRACE /hidden HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n')\n"
      "tried('connect', b'CONNECT evil.test:80 HTTP/1.1\\r\\nHost: evil.test:80\\r\\n\\r\\n' + "
      "hidden)\n"
      "tried('connect to it', b'CONNECT allowed.test:80 HTTP/1.1\\r\\nHost: "
      "allowed.test:80\\r\\n\\r\\n' + hidden)\n"
      "tried('it', request('allowed.test', '/hidden'))\n";
  EXPECT_EQ(through("allow=http:allowed.test", code), Names{"it"});
  for (const nlohmann::json& one : internet().requests()) {
    EXPECT_EQ(one["host"], "allowed.test");
  }
  EXPECT_THAT(through("allow=tcp:allowed.test:80", code), Contains("h2c"));
}

TEST_P(EgressBytesAttack, D25_ARedirectIsFollowedToWhatIsAllowed) {
  const std::string code =
      "for target in ('http://evil.test/', 'http://169.254.169.254/latest/', 'http://11.6.6.6/',\n"
      "               'http://127.0.0.1:61001/', 'https://evil.test/', 'http://a.wild.test/'):\n"
      "    attempt(target, fetch, 'http://allowed.test/redirect/' + target)\n"
      "attempt('file', fetch, 'http://allowed.test/redirect/file:///etc/passwd')\n";
  EXPECT_EQ(through("allow=http:allowed.test,http:*.wild.test", code),
            Names{"http://a.wild.test/"});
  EXPECT_THAT(reached(), (Names{"tcp 11.1.1.1 80", "tcp 11.1.1.2 80"}));
  EXPECT_THAT(through("full", code),
              testing::IsSupersetOf(Names{"http://evil.test/", "http://11.6.6.6/"}));
}

}  // namespace
}  // namespace carrel::test
