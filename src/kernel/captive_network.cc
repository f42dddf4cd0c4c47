#include "kernel/captive_network.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#include <array>

#include "kernel/netlink.h"

namespace carrel::kernel {

namespace {

constexpr std::uint32_t kLoopback = 1;  // the first interface of every namespace
constexpr std::uint32_t kPreferDestinationNat = static_cast<std::uint32_t>(-100);
constexpr std::uint16_t kNew = NLM_F_CREATE | NLM_F_EXCL;

constexpr const char* kTable = "carrel";
constexpr const char* kRedirecting = "toward";
constexpr const char* kRefusing = "out";

template <typename T>
std::string_view view_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The address in its network form.
std::string address_bytes(int family, std::string_view text) {
  std::array<char, sizeof(in6_addr)> bytes{};
  ::inet_pton(family, std::string(text).c_str(), bytes.data());
  return {bytes.data(), family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr)};
}

std::string routes_of(int family, std::string_view own) {
  const std::string address = address_bytes(family, own);
  NetlinkBatch batch;
  ifaddrmsg assigned{};
  assigned.ifa_family = static_cast<std::uint8_t>(family);
  assigned.ifa_prefixlen = static_cast<std::uint8_t>(address.size() * 8);
  assigned.ifa_flags = IFA_F_PERMANENT | IFA_F_NODAD;
  assigned.ifa_index = kLoopback;
  batch.message(RTM_NEWADDR, kNew, view_of(assigned));
  if (family == AF_INET) {
    batch.bytes(IFA_LOCAL, address);
  }
  batch.bytes(IFA_ADDRESS, address);
  rtmsg route{};
  route.rtm_family = static_cast<std::uint8_t>(family);
  route.rtm_table = RT_TABLE_LOCAL;
  route.rtm_protocol = RTPROT_STATIC;
  route.rtm_scope = RT_SCOPE_HOST;
  route.rtm_type = RTN_LOCAL;
  batch.message(RTM_NEWROUTE, kNew | NLM_F_ACK, view_of(route));
  batch.bytes(RTA_PREFSRC, address).u32(RTA_OIF, kLoopback);
  return batch.take();
}

// The rules of one table, in the words of the kernel's little machine: load into a register,
// compare, act.
class Rules {
 public:
  Rules() {
    const nfgenmsg begin{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
    batch_.message(NFNL_MSG_BATCH_BEGIN, 0, view_of(begin));
    command(NFT_MSG_NEWTABLE, NLM_F_CREATE);
    batch_.text(NFTA_TABLE_NAME, kTable);
  }

  void chain(const char* name, const char* type, std::uint32_t priority) {
    command(NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    batch_.text(NFTA_CHAIN_TABLE, kTable).text(NFTA_CHAIN_NAME, name);
    batch_.begin(NFTA_CHAIN_HOOK)
        .be32(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT)
        .be32(NFTA_HOOK_PRIORITY, priority)
        .end();
    batch_.text(NFTA_CHAIN_TYPE, type);
    chain_ = name;
  }

  Rules& rule(std::uint16_t flags = 0) {
    command(NFT_MSG_NEWRULE, static_cast<std::uint16_t>(NLM_F_CREATE | NLM_F_APPEND | flags));
    batch_.text(NFTA_RULE_TABLE, kTable).text(NFTA_RULE_CHAIN, chain_);
    batch_.begin(NFTA_RULE_EXPRESSIONS);
    return *this;
  }
  void done() { batch_.end(); }

  Rules& meta_is(std::uint32_t key, std::uint8_t value) {
    begin("meta");
    batch_.be32(NFTA_META_DREG, NFT_REG_1).be32(NFTA_META_KEY, key);
    end();
    return compare(view_of(value));
  }

  Rules& payload_is(std::uint32_t base, std::uint32_t offset, std::string_view value) {
    begin("payload");
    batch_.be32(NFTA_PAYLOAD_DREG, NFT_REG_1)
        .be32(NFTA_PAYLOAD_BASE, base)
        .be32(NFTA_PAYLOAD_OFFSET, offset)
        .be32(NFTA_PAYLOAD_LEN, static_cast<std::uint32_t>(value.size()));
    end();
    return compare(value);
  }

  void accept() {
    begin("immediate");
    batch_.be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT).begin(NFTA_IMMEDIATE_DATA);
    batch_.begin(NFTA_DATA_VERDICT).be32(NFTA_VERDICT_CODE, NF_ACCEPT).end().end();
    end();
    done();
  }

  void redirect(std::uint16_t port) {
    const std::uint16_t wire = htons(port);
    begin("immediate");
    batch_.be32(NFTA_IMMEDIATE_DREG, NFT_REG_1)
        .begin(NFTA_IMMEDIATE_DATA)
        .bytes(NFTA_DATA_VALUE, view_of(wire))
        .end();
    end();
    begin("redir");
    batch_.be32(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    end();
    done();
  }

  void reject() {
    begin("reject");
    batch_.be32(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH)
        .u8(NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
    end();
    done();
  }

  std::string take() {
    const nfgenmsg finish{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
    batch_.message(NFNL_MSG_BATCH_END, 0, view_of(finish));
    return batch_.take();
  }

 private:
  void command(int type, std::uint16_t flags) {
    const nfgenmsg header{NFPROTO_INET, NFNETLINK_V0, 0};
    batch_.message(static_cast<std::uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | type), flags,
                   view_of(header));
  }
  void begin(const char* expression) {
    batch_.begin(NFTA_LIST_ELEM).text(NFTA_EXPR_NAME, expression).begin(NFTA_EXPR_DATA);
  }
  void end() { batch_.end().end(); }
  Rules& compare(std::string_view value) {
    begin("cmp");
    batch_.be32(NFTA_CMP_SREG, NFT_REG_1)
        .be32(NFTA_CMP_OP, NFT_CMP_EQ)
        .begin(NFTA_CMP_DATA)
        .bytes(NFTA_DATA_VALUE, value)
        .end();
    end();
    return *this;
  }

  NetlinkBatch batch_;
  const char* chain_ = nullptr;
};

// What is meant for the namespace itself.
void accept_own(Rules& rules) {
  constexpr std::uint32_t kDestination = 16;  // in the header of IPv4
  constexpr std::uint32_t kDestination6 = 24;
  const auto accept = [&](std::uint8_t family, std::uint32_t offset, std::string_view value) {
    rules.rule()
        .meta_is(NFT_META_NFPROTO, family)
        .payload_is(NFT_PAYLOAD_NETWORK_HEADER, offset, value)
        .accept();
  };
  constexpr std::string_view kLoopbackNet("\x7f", 1);  // 127.0.0.0/8
  accept(NFPROTO_IPV4, kDestination, kLoopbackNet);
  accept(NFPROTO_IPV4, kDestination, address_bytes(AF_INET, kCaptiveAddress));
  accept(NFPROTO_IPV6, kDestination6, address_bytes(AF_INET6, "::1"));
  accept(NFPROTO_IPV6, kDestination6, address_bytes(AF_INET6, kCaptiveAddress6));
}

std::string rules() {
  const std::uint16_t dns = htons(53);
  constexpr std::uint32_t kDestinationPort = 2;
  Rules rules;
  rules.chain(kRedirecting, "nat", kPreferDestinationNat);
  accept_own(rules);
  constexpr std::uint8_t kDnsProtocols[] = {IPPROTO_UDP, IPPROTO_TCP};
  for (const std::uint8_t protocol : kDnsProtocols) {
    rules.rule()
        .meta_is(NFT_META_L4PROTO, protocol)
        .payload_is(NFT_PAYLOAD_TRANSPORT_HEADER, kDestinationPort, view_of(dns))
        .redirect(kCaptiveDnsPort);
  }
  rules.rule().meta_is(NFT_META_L4PROTO, IPPROTO_TCP).redirect(kCaptiveTcpPort);
  rules.chain(kRefusing, "filter", 0);
  accept_own(rules);
  rules.rule(NLM_F_ACK).reject();
  return rules.take();
}

}  // namespace

CaptiveNetwork captive_network() {
  return {routes_of(AF_INET, kCaptiveAddress), routes_of(AF_INET6, kCaptiveAddress6), rules()};
}

}  // namespace carrel::kernel
