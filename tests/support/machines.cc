#include "support/machines.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "support/host.h"
#include "support/place.h"

namespace carrel::test {

namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// Copies that stay as long as the program.
struct Stock {
  std::map<As, std::string> folders;
  Stock() = default;
  Stock(const Stock&) = delete;
  Stock& operator=(const Stock&) = delete;
  ~Stock() {
    std::error_code ignored;
    for (const auto& [as, folder] : folders) {
      fs::remove_all(folder, ignored);
    }
  }
};

void copy_folder(const std::string& from, const std::string& to, As as) {
  fs::create_directory(to);
  ASSERT_EQ(::chmod(to.c_str(), 0700), 0);
  place().give(to, as);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string copy = to + "/" + entry.path().filename().string();
    fs::copy_file(entry.path(), copy);
    ASSERT_EQ(::chmod(copy.c_str(), 0600), 0);
    place().give(copy, as);
  }
}

// What the one who was to save a machine wrote when that did not work.
std::string why_not_saved(As as) {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_of_saved_machines(as), missing)) {
    if (entry.path().extension() == ".failed") {
      return read_text(entry.path()).value_or("") + "?";
    }
  }
  return {};
}

// For whoever reads that one was not saved: what there is of it, and what its processes do.
std::string what_saves(As as) {
  std::string text;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_of_saved_machines(as), missing)) {
    text +=
        entry.path().filename().string() + " " + std::to_string(entry.file_size(missing)) + "\n";
  }
  for (const HostProcess& one : descendants()) {
    const std::string process = "/proc/" + std::to_string(one.pid);
    text += read_text(process + "/stat").value_or("") + read_text(process + "/wchan").value_or("") +
            "\n";
  }
  return text;
}

}  // namespace

std::string folder_of_saved_machines(As as) { return place().home(as) + "/machines"; }

std::vector<std::string> saved_machines(As as) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_of_saved_machines(as), missing)) {
    if (entry.path().extension().empty()) {
      names.push_back(entry.path().filename().string());
    }
  }
  return names;
}

void use_saved_machines() { ::setenv("CARREL_VM_SNAPSHOTS", "usual", 1); }

void plant_saved_machine(As as) {
  static Stock stock;
  if (stock.folders.contains(as)) {
    copy_folder(stock.folders[as], folder_of_saved_machines(as), as);
    return;
  }
  const Run first =
      carrel(as, {"run", "--backend", "microvm", "--", "true"}, {.timeout_seconds = 120});
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_TRUE(eventually(seconds(120), [&] {
    return !saved_machines(as).empty() || !why_not_saved(as).empty();
  })) << what_saves(as);
  ASSERT_EQ(why_not_saved(as), "");
  await_savers();
  std::string name = "/tmp/carrel-machines-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  stock.folders[as] = name;
  fs::remove_all(name);
  copy_folder(folder_of_saved_machines(as), name, As::kRoot);
}

bool is_being_saved(pid_t vmm) {
  const std::string words = read_text("/proc/" + std::to_string(vmm) + "/cmdline").value_or("");
  return words.find("id=monitor") != std::string::npos;
}

void await_savers() {
  EXPECT_TRUE(eventually(seconds(120), [] {
    for (const HostProcess& one : descendants()) {
      const std::string words =
          read_text("/proc/" + std::to_string(one.pid) + "/cmdline").value_or("");
      if (words.find(std::string("hall\0save", 9)) != std::string::npos) {
        return false;
      }
    }
    return true;
  }));
}

}  // namespace carrel::test
