// What the processes of the shipped program leave writable of themselves.
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/host.h"
#include "support/serve.h"

namespace carrel::test {
namespace {

class OwnMemory : public ServeTest {};
CARREL_AS_BOTH(OwnMemory);

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLeastProtected = 256U << 10;  // the tables of this program are larger

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The segment PT_GNU_RELRO of the program, in whole pages.
Range tables_of(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr head{};
  file.read(reinterpret_cast<char*>(&head), sizeof head);
  file.seekg(static_cast<std::streamoff>(head.e_phoff));
  for (int i = 0; file.good() && i < head.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);
    if (segment.p_type == PT_GNU_RELRO) {
      return {segment.p_vaddr / kPage * kPage, (segment.p_vaddr + segment.p_memsz) / kPage * kPage};
    }
  }
  return {};
}

// The lines of /proc/PID/maps that overlap with the range and can be written to.
std::string writable_in(pid_t pid, const Range& range) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::string writable;
  std::uint64_t covered = 0;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    Range mapped;
    char dash = 0;
    std::string rights;
    words >> std::hex >> mapped.begin >> dash >> mapped.end >> rights;
    if (mapped.begin >= range.end || mapped.end <= range.begin) {
      continue;
    }
    covered += std::min(mapped.end, range.end) - std::max(mapped.begin, range.begin);
    writable += rights.find('w') != std::string::npos ? line + "\n" : "";
  }
  return covered == range.end - range.begin ? writable : "not all of it is mapped\n";
}

// The processes below this test that run the program.
std::vector<pid_t> running(const std::string& program) {
  std::vector<pid_t> found;
  for (const HostProcess& process : descendants()) {
    std::error_code error;
    const std::string executed =
        std::filesystem::read_symlink("/proc/" + std::to_string(process.pid) + "/exe", error);
    if (executed == program) {
      found.push_back(process.pid);
    }
  }
  return found;
}

// The tables of virtual functions and the global offset table, at addresses that everybody knows.
TEST_P(OwnMemory, TablesOfEveryProcessAreReadOnly) {
  const std::string program = std::filesystem::canonical(place().program());
  const Range tables = tables_of(program);
  ASSERT_GE(tables.end - tables.begin, kLeastProtected) << "PT_GNU_RELRO is small or missing";
  serve();
  const std::string box = create();
  EXPECT_EQ(shell(box, "echo hello")["stdout"], "hello\n");
  const std::vector<pid_t> processes = running(program);
  EXPECT_GE(processes.size(), 2U) << "there are a daemon and a keeper";
  EXPECT_NE(std::find(processes.begin(), processes.end(), daemon_->pid()), processes.end());
  for (const pid_t pid : processes) {
    EXPECT_EQ(writable_in(pid, tables), "") << "in process " << pid;
  }
}

}  // namespace
}  // namespace carrel::test
