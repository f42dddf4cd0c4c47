#include "support/internet.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "support/host.h"

namespace carrel::test {

namespace {

constexpr std::chrono::seconds kPatience(30);

constexpr const char* kGateway = "11.0.0.1";
constexpr std::uint16_t kDiscardPort = 9;

bool shell(const std::string& text) { return std::system(text.c_str()) == 0; }

void send_to_gateway(const std::string& text) {
  sockaddr_in gateway{};
  gateway.sin_family = AF_INET;
  gateway.sin_port = htons(kDiscardPort);
  ::inet_pton(AF_INET, kGateway, &gateway.sin_addr);
  const int sock = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ::sendto(sock, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&gateway),
           sizeof gateway);
  ::close(sock);
}

// The kernel keeps the order of what one processor sent, so each of them sends a mark.
std::vector<std::string> send_marks() {
  static int count = 0;
  std::vector<std::string> marks;
  cpu_set_t before;
  ::sched_getaffinity(0, sizeof before, &before);
  for (std::size_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &before)) {
      continue;
    }
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    ::sched_setaffinity(0, sizeof only, &only);
    marks.push_back(std::to_string(++count));
    send_to_gateway("carrel-mark " + marks.back());
  }
  ::sched_setaffinity(0, sizeof before, &before);
  return marks;
}

}  // namespace

Internet::Internet(const std::string& directory) : directory_(directory) {
  std::filesystem::create_directories(directory);
  if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    ADD_FAILURE() << "cannot make namespaces for the test";
    return;
  }
  Launch launch;
  launch.program = "/usr/bin/python3";
  launch.arguments = {"-B", CARREL_INTERNET_SCRIPT, directory};
  launch.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  launch.directory = "/";
  process_ = std::make_unique<Process>(launch);
  if (!process_->wait_for_output("\n", kPatience)) {
    ADD_FAILURE() << "no internet (openssl and iproute2 are needed)";
    return;
  }
  const std::string pid = process_->out().substr(0, process_->out().find('\n'));
  const std::string resolver = directory + "/resolv.conf";
  write_text(resolver, "nameserver 11.0.0.53\n");
  const bool connected =
      shell(
          "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up && "
          "ip link add outside type veth peer name inside netns " +
          pid +
          " && "
          "ip addr add 11.0.0.2/24 dev outside && "
          "ip -6 addr add 2400:1111:ffff::2/64 dev outside nodad && ip link set outside up && "
          "ip route add default via 11.0.0.1 && "
          "ip -6 route add default via 2400:1111:ffff::1") &&
      shell("mount --bind " + resolver + " \"$(readlink -f /etc/resolv.conf)\"");
  EXPECT_TRUE(connected) << "cannot connect the test to its internet";
  process_->write("go\n");
  EXPECT_TRUE(process_->wait_for_output("ready\n", kPatience)) << "the internet does not start";
}

Internet::~Internet() {
  if (process_) {
    (void)shell("umount \"$(readlink -f /etc/resolv.conf)\"");
    (void)shell("umount \"$(readlink -f /etc/ssl/certs/ca-certificates.crt)\" 2>/dev/null");
    (void)process_->wait(kPatience);
  }
}

void Internet::trust() const {
  const std::string bundle = directory_ + "/trusted.crt";
  EXPECT_TRUE(
      shell("file=$(readlink -f /etc/ssl/certs/ca-certificates.crt) && "
            "cat \"$file\" " +
            directory_ + "/ca.pem > " + bundle +
            " && "
            "chmod 0644 " +
            bundle + " && mount --bind " + bundle + " \"$file\""))
      << "the host has no list of certificate authorities";
}

std::string Internet::authority_certificate() const {
  return read_text(directory_ + "/ca.pem").value_or("");
}

std::vector<std::string> Internet::lines(const std::string& file) const {
  std::vector<std::string> result;
  std::istringstream text(read_text(directory_ + "/" + file).value_or(""));
  for (std::string line; std::getline(text, line);) {
    result.push_back(line);
  }
  return result;
}

std::vector<std::string> Internet::queries() const { return lines("queries"); }

void Internet::await_packets() const {
  std::vector<std::string> marks = send_marks();
  EXPECT_TRUE(eventually(kPatience,
                         [&] {
                           for (const std::string& seen : lines("marks")) {
                             std::erase(marks, seen);
                           }
                           return marks.empty();
                         }))
      << marks.size() << " datagrams did not arrive in the test's internet";
}

std::vector<std::string> Internet::packets() const {
  await_packets();
  return lines("packets");
}

std::vector<std::string> Internet::connections() const { return lines("connections"); }

void Internet::run(const std::string& command) { process_->write(command + "\n"); }

std::vector<nlohmann::json> Internet::requests() const {
  std::vector<nlohmann::json> result;
  for (const std::string& line : lines("requests")) {
    result.push_back(nlohmann::json::parse(line, nullptr, false));
  }
  return result;
}

}  // namespace carrel::test
