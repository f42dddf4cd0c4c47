#include "guest/captive_stock.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "guest/network.h"
#include "kernel/captive_network.h"
#include "kernel/netlink.h"

namespace carrel::guest {
namespace {

protocol::Captive messages_of(const kernel::CaptiveNetwork& network) {
  return {network.routes, network.routes6, network.rules};
}

// Rules that redirect nothing: a table without a chain.
std::string empty_rules() {
  const auto view = [](const auto& value) {
    return std::string_view(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const nfgenmsg whole{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
  const nfgenmsg inet{NFPROTO_INET, NFNETLINK_V0, 0};
  kernel::NetlinkBatch batch;
  batch.message(NFNL_MSG_BATCH_BEGIN, 0, view(whole));
  batch.message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, view(inet));
  batch.text(NFTA_TABLE_NAME, "carrel");
  batch.message(NFNL_MSG_BATCH_END, 0, view(whole));
  return batch.take();
}

// Whether it is so in a process that may make networks.
bool holds(const std::function<bool()>& question) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool may = ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    ::_exit(may && question() ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

TEST(CaptiveStock, HasANetworkWithItsSocketsForThoseWhoWouldMakeTheSame) {
  const kernel::CaptiveNetwork network = kernel::captive_network();
  EXPECT_TRUE(holds([&] {
    CaptiveStock stock;
    CaptiveSockets sockets;
    stock.prepare(messages_of(network));
    const kernel::CaptiveNetwork other{network.routes, network.routes6, empty_rules()};
    const bool for_another = stock.take(messages_of(other), sockets) >= 0;
    const bool first = stock.take(messages_of(network), sockets) >= 0;
    const bool complete = (sockets.present & protocol::kNeededSockets) == protocol::kNeededSockets;
    CaptiveSockets none;
    return !for_another && first && complete && stock.take(messages_of(network), none) < 0;
  }));
}

TEST(CaptiveStock, HasNoneWhereConnectionsDoNotArrive) {
  kernel::CaptiveNetwork network = kernel::captive_network();
  network.rules = empty_rules();
  EXPECT_TRUE(holds([&] {
    Failure failure;
    CaptiveStock stock;
    CaptiveSockets sockets;
    stock.prepare(messages_of(network));
    // The kernel takes them: it is what they do not do.
    return stock.take(messages_of(network), sockets) < 0 && make_network() &&
           make_captive(messages_of(network), failure);
  }));
}

}  // namespace
}  // namespace carrel::guest
