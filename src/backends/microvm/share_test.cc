#include "backends/microvm/share.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "guest/contained.h"

namespace carrel::microvm {
namespace {

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string with_end(const std::string& name) { return {name.c_str(), name.size() + 1}; }

// A machine that asks for files of a folder, and what the folder has on the host.
class ShareTest : public testing::Test {
 protected:
  ShareTest() {
    std::string name = testing::TempDir() + "share-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    place_ = name;
    top_ = place_ + "/tree";
    std::filesystem::create_directory(top_);
    descriptors_.reset(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
    begin();
  }
  ~ShareTest() override { std::filesystem::remove_all(place_); }

  void begin(ShareBounds bounds = {}, ShareMode mode = ShareMode::kReadWrite) {
    share_ = std::make_unique<Share>(UniqueFd(::open(top_.c_str(), O_PATH | O_CLOEXEC)), mode,
                                     descriptors_.get(), bounds);
  }

  bool ask(std::uint32_t opcode, std::uint64_t node, const std::string& body) {
    reply_ = {};
    return share_->answer({opcode, 1, node, body}, reply_);
  }
  int error(std::uint32_t opcode, std::uint64_t node, const std::string& body) {
    EXPECT_TRUE(ask(opcode, node, body)) << opcode;
    return reply_.error();
  }
  template <typename T>
  T answer() {
    T value{};
    FuseBody body(reply_.bytes());
    EXPECT_TRUE(body.take(value));
    return value;
  }

  std::uint64_t look(std::uint64_t folder, const std::string& name) {
    return error(FUSE_LOOKUP, folder, with_end(name)) == 0 ? answer<fuse_entry_out>().nodeid : 0;
  }
  int open(std::uint64_t node, std::uint32_t flags) {
    fuse_open_in wanted{};
    wanted.flags = flags;
    const int result = error(FUSE_OPEN, node, bytes_of(wanted));
    handle_ = result == 0 ? answer<fuse_open_out>().fh : 0;
    return result;
  }
  int create(std::uint64_t folder, const std::string& name, std::uint32_t mode) {
    fuse_create_in wanted{};
    wanted.flags = O_RDWR | O_CREAT | O_EXCL;
    wanted.mode = S_IFREG | mode;
    const int result = error(FUSE_CREATE, folder, bytes_of(wanted) + with_end(name));
    if (result == 0) {
      node_ = answer<fuse_entry_out>().nodeid;
      std::memcpy(&handle_, reply_.bytes().data() + sizeof(fuse_entry_out), sizeof handle_);
    }
    return result;
  }
  int write(const std::string& text) {
    fuse_write_in wanted{};
    wanted.fh = handle_;
    wanted.size = static_cast<std::uint32_t>(text.size());
    return error(FUSE_WRITE, node_, bytes_of(wanted) + text);
  }
  std::string read() {
    fuse_read_in wanted{};
    wanted.fh = handle_;
    wanted.size = 4096;
    EXPECT_EQ(error(FUSE_READ, node_, bytes_of(wanted)), 0);
    return std::string(reply_.bytes());
  }
  int set_mode(std::uint64_t node, std::uint32_t mode) {
    fuse_setattr_in wanted{};
    wanted.valid = FATTR_MODE;
    wanted.mode = mode;
    return error(FUSE_SETATTR, node, bytes_of(wanted));
  }
  int rename(const std::string& from, std::uint64_t folder, const std::string& to,
             std::uint32_t flags = 0) {
    fuse_rename2_in wanted{};
    wanted.newdir = folder;
    wanted.flags = flags;
    return error(FUSE_RENAME2, ShareNodes::kRoot, bytes_of(wanted) + with_end(from) + with_end(to));
  }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(top_ + "/" + name) << text;
  }
  std::string on_host(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(top_ + "/" + name).rdbuf();
    return text.str();
  }
  struct stat facts(const std::string& name) const {
    struct stat info{};
    EXPECT_EQ(::lstat((top_ + "/" + name).c_str(), &info), 0) << name;
    return info;
  }

  std::string place_;
  std::string top_;
  UniqueFd descriptors_;
  std::unique_ptr<Share> share_;
  FuseReply reply_;
  std::uint64_t handle_ = 0;
  std::uint64_t node_ = 0;
};

constexpr std::uint64_t kRoot = ShareNodes::kRoot;

TEST_F(ShareTest, WhatIsWrittenIsOnTheHostAtOnce) {
  ASSERT_EQ(create(kRoot, "new", 0640), 0);
  EXPECT_EQ(write("text"), 0);
  EXPECT_EQ(on_host("new"), "text");
  EXPECT_EQ(facts("new").st_mode & 07777, 0640U);
  EXPECT_EQ(facts("new").st_uid, ::geteuid());
  EXPECT_EQ(read(), "text");
  EXPECT_EQ(create(kRoot, "new", 0640), EEXIST);
  ASSERT_GT(look(kRoot, "new"), 0U);
  EXPECT_EQ(answer<fuse_entry_out>().attr.uid, guest::kInnerId);
  EXPECT_EQ(answer<fuse_entry_out>().attr.size, 4U);
}

TEST_F(ShareTest, ANameThatIsNoneIsMalformed) {
  put("inside", "");
  std::ofstream(place_ + "/outside") << "secret";
  const std::string kNames[] = {with_end(".."),
                                with_end("."),
                                with_end(""),
                                with_end("../outside"),
                                with_end("a/b"),
                                with_end("/etc"),
                                with_end(std::string(256, 'n')),
                                "inside",                     // without its end
                                with_end("inside") + "more",  // and with something after it
                                ""};
  for (const std::string& name : kNames) {
    for (const std::uint32_t opcode : {FUSE_LOOKUP, FUSE_UNLINK, FUSE_RMDIR}) {
      EXPECT_FALSE(ask(opcode, kRoot, name)) << opcode << " " << name;
    }
    EXPECT_FALSE(ask(FUSE_MKDIR, kRoot, bytes_of(fuse_mkdir_in{}) + name)) << name;
    EXPECT_FALSE(ask(FUSE_MKNOD, kRoot, bytes_of(fuse_mknod_in{}) + name)) << name;
    EXPECT_FALSE(ask(FUSE_CREATE, kRoot, bytes_of(fuse_create_in{}) + name)) << name;
    EXPECT_FALSE(ask(FUSE_LINK, kRoot, bytes_of(fuse_link_in{kRoot}) + name)) << name;
    EXPECT_FALSE(ask(FUSE_SYMLINK, kRoot, name + "target")) << name;
    fuse_rename_in wanted{kRoot};
    EXPECT_FALSE(ask(FUSE_RENAME, kRoot, bytes_of(wanted) + with_end("inside") + name)) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(place_ + "/outside"));
  EXPECT_TRUE(std::filesystem::exists(top_ + "/inside"));
}

TEST_F(ShareTest, ALinkIsToldAndNotFollowed) {
  std::filesystem::create_directory(place_ + "/outside");
  std::ofstream(place_ + "/outside/secret") << "secret";
  std::filesystem::create_symlink("../outside", top_ + "/link");
  std::filesystem::create_symlink(place_ + "/outside/secret", top_ + "/file");
  const std::uint64_t link = look(kRoot, "link");
  ASSERT_GT(link, 0U);
  EXPECT_TRUE(S_ISLNK(answer<fuse_entry_out>().attr.mode));
  EXPECT_EQ(look(link, "secret"), 0U);
  EXPECT_EQ(create(link, "new", 0600), ENOTDIR);
  EXPECT_NE(open(look(kRoot, "file"), O_RDONLY), 0);
  EXPECT_EQ(error(FUSE_READLINK, link, ""), 0);
  EXPECT_EQ(reply_.bytes(), "../outside");
  EXPECT_FALSE(std::filesystem::exists(place_ + "/outside/new"));
}

// Somebody else on the host who changes the tree meanwhile gives nothing of his away.
TEST_F(ShareTest, AFolderThatBecameALinkLeadsNowhere) {
  std::filesystem::create_directories(place_ + "/outside");
  std::ofstream(place_ + "/outside/file") << "secret";
  std::filesystem::create_directory(top_ + "/folder");
  put("folder/file", "mine");
  const std::uint64_t folder = look(kRoot, "folder");
  const std::uint64_t file = look(folder, "file");
  ASSERT_EQ(open(file, O_RDONLY), 0);
  EXPECT_EQ(read(), "mine");
  std::filesystem::rename(top_ + "/folder", top_ + "/moved");
  std::filesystem::create_symlink("../outside", top_ + "/folder");
  fuse_release_in done{};
  done.fh = handle_;
  EXPECT_EQ(error(FUSE_RELEASE, file, bytes_of(done)), 0);
  EXPECT_EQ(open(file, O_RDONLY), ESTALE);
  EXPECT_EQ(look(folder, "file"), 0U);
  EXPECT_EQ(create(folder, "new", 0600), ESTALE);
  EXPECT_FALSE(std::filesystem::exists(place_ + "/outside/new"));
  // Where it is now, it is found again.
  EXPECT_EQ(look(look(kRoot, "moved"), "file"), file);
  EXPECT_EQ(open(file, O_RDONLY), 0);
}

TEST_F(ShareTest, AFileThatWasReplacedIsAnotherOne) {
  put("file", "old");
  const std::uint64_t file = look(kRoot, "file");
  put("other", "new");
  std::filesystem::rename(top_ + "/other", top_ + "/file");
  EXPECT_EQ(open(file, O_RDONLY), ESTALE);
  const std::uint64_t other = look(kRoot, "file");
  EXPECT_NE(other, file);
  ASSERT_EQ(open(other, O_RDONLY), 0);
  EXPECT_EQ(read(), "new");
}

TEST_F(ShareTest, NoDeviceIsMadeAndNothingButAFileIsOpened) {
  for (const std::uint32_t kind : {S_IFCHR + 0U, S_IFBLK + 0U, S_IFDIR + 0U, S_IFLNK + 0U, 0U}) {
    fuse_mknod_in wanted{};
    wanted.mode = kind | 0600;
    EXPECT_EQ(error(FUSE_MKNOD, kRoot, bytes_of(wanted) + with_end("node")), EPERM) << kind;
  }
  EXPECT_FALSE(std::filesystem::exists(top_ + "/node"));
  fuse_mknod_in wanted{};
  wanted.mode = S_IFIFO | 0600;
  ASSERT_EQ(error(FUSE_MKNOD, kRoot, bytes_of(wanted) + with_end("pipe")), 0);
  EXPECT_TRUE(S_ISFIFO(facts("pipe").st_mode));
  EXPECT_EQ(open(look(kRoot, "pipe"), O_RDONLY), EINVAL);
}

TEST_F(ShareTest, NoSetIdBitIsSet) {
  put("file", "");
  const std::uint64_t file = look(kRoot, "file");
  for (const std::uint32_t mode : {04755U, 02755U, 06000U}) {
    EXPECT_EQ(set_mode(file, mode), EPERM) << mode;
    ASSERT_EQ(create(kRoot, "new" + std::to_string(mode), mode), 0);
    EXPECT_EQ(facts("new" + std::to_string(mode)).st_mode & 06000, 0U);
    fuse_mkdir_in wanted{};
    wanted.mode = mode;
    const std::string name = "folder" + std::to_string(mode);
    ASSERT_EQ(error(FUSE_MKDIR, kRoot, bytes_of(wanted) + with_end(name)), 0);
    EXPECT_EQ(facts(name).st_mode & 06000, 0U);
  }
  EXPECT_EQ(facts("file").st_mode & 06000, 0U);
  // Also of a file that nobody can open.
  EXPECT_EQ(set_mode(file, 0), 0);
  EXPECT_EQ(facts("file").st_mode & 07777, 0U);
  EXPECT_EQ(set_mode(file, 0644), 0);
  EXPECT_EQ(facts("file").st_mode & 07777, 0644U);
}

TEST_F(ShareTest, WhatIsReadOnlyIsNotChanged) {
  put("file", "text");
  begin({}, ShareMode::kReadOnly);
  const std::uint64_t file = look(kRoot, "file");
  for (const std::uint32_t flags : {O_WRONLY + 0U, O_RDWR + 0U, O_TRUNC + 0U, 3U}) {
    EXPECT_EQ(open(file, flags), EROFS) << flags;
  }
  ASSERT_EQ(open(file, O_RDONLY), 0);
  EXPECT_EQ(read(), "text");
  EXPECT_EQ(write("more"), EROFS);
  EXPECT_EQ(create(kRoot, "new", 0600), EROFS);
  EXPECT_EQ(set_mode(file, 0600), EROFS);
  EXPECT_EQ(rename("file", kRoot, "other"), EROFS);
  for (const std::uint32_t opcode :
       {FUSE_UNLINK, FUSE_RMDIR, FUSE_MKDIR, FUSE_MKNOD, FUSE_LINK, FUSE_SYMLINK, FUSE_RENAME,
        FUSE_FALLOCATE, FUSE_SETXATTR, FUSE_REMOVEXATTR}) {
    EXPECT_EQ(error(opcode, kRoot, with_end("file")), EROFS) << opcode;
  }
  EXPECT_EQ(on_host("file"), "text");
}

TEST_F(ShareTest, WhatIsHiddenIsForgottenWithItsFile) {
  put("secret", "text");
  share_->hide("secret");
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t secret = look(kRoot, "secret");
    EXPECT_EQ(open(secret, O_RDONLY), EACCES);
    EXPECT_EQ(share_->hidden(), 1U);
    EXPECT_TRUE(ask(FUSE_FORGET, secret, bytes_of(fuse_forget_in{1})));
    EXPECT_EQ(share_->hidden(), 0U);
  }
}

TEST_F(ShareTest, WhatIsHiddenIsSeenAndNotUsed) {
  std::filesystem::create_directories(top_ + "/folder/keys");
  put(".env", "secret");
  put("folder/keys/id", "secret");
  put("other", "");
  share_->hide(".env");
  share_->hide("folder/keys");
  share_->hide("missing/thing");
  const std::uint64_t file = look(kRoot, ".env");
  const std::uint64_t folder = look(kRoot, "folder");
  const std::uint64_t keys = look(folder, "keys");
  ASSERT_GT(keys, 0U);
  fuse_getattr_in facts{};
  EXPECT_EQ(error(FUSE_GETATTR, file, bytes_of(facts)), 0);
  EXPECT_EQ(open(file, O_RDONLY), EACCES);
  EXPECT_EQ(set_mode(file, 0666), EACCES);
  EXPECT_EQ(create(kRoot, ".env", 0600), EACCES);
  EXPECT_EQ(look(keys, "id"), 0U);
  EXPECT_EQ(reply_.error(), EACCES);
  EXPECT_EQ(error(FUSE_OPENDIR, keys, bytes_of(fuse_open_in{})), EACCES);
  EXPECT_EQ(error(FUSE_UNLINK, kRoot, with_end(".env")), EACCES);
  EXPECT_EQ(rename(".env", kRoot, "seen"), EACCES);
  EXPECT_EQ(rename("other", kRoot, ".env"), EACCES);
  EXPECT_EQ(error(FUSE_LINK, kRoot, bytes_of(fuse_link_in{file}) + with_end("seen")), EACCES);
  // A folder above it can have another name; that changes nothing.
  ASSERT_EQ(rename("folder", kRoot, "renamed"), 0);
  EXPECT_EQ(look(look(look(kRoot, "renamed"), "keys"), "id"), 0U);
  EXPECT_EQ(on_host(".env"), "secret");
}

TEST_F(ShareTest, NobodyElseBecomesAnOwner) {
  put("file", "");
  const std::uint64_t file = look(kRoot, "file");
  fuse_setattr_in wanted{};
  wanted.valid = FATTR_UID;
  EXPECT_EQ(error(FUSE_SETATTR, file, bytes_of(wanted)), EPERM);
  wanted.uid = guest::kInnerId;
  EXPECT_EQ(error(FUSE_SETATTR, file, bytes_of(wanted)), 0);
}

TEST_F(ShareTest, WhatIsInARenamedFolderIsStillKnown) {
  std::filesystem::create_directory(top_ + "/folder");
  put("folder/file", "text");
  const std::uint64_t file = look(look(kRoot, "folder"), "file");
  ASSERT_EQ(rename("folder", kRoot, "renamed"), 0);
  ASSERT_EQ(open(file, O_RDWR), 0);
  EXPECT_EQ(read(), "text");
  put("other", "");
  EXPECT_EQ(rename("other", kRoot, "renamed", RENAME_NOREPLACE), EEXIST);
  EXPECT_EQ(rename("other", kRoot, "renamed", RENAME_EXCHANGE), 0);
  EXPECT_EQ(rename("other", kRoot, "gone", RENAME_WHITEOUT), EINVAL);
  EXPECT_FALSE(std::filesystem::exists(top_ + "/gone"));
}

TEST_F(ShareTest, AFileWithoutANameIsUsedAsLongAsItIsOpen) {
  ASSERT_EQ(create(kRoot, "file", 0600), 0);
  EXPECT_EQ(error(FUSE_UNLINK, kRoot, with_end("file")), 0);
  EXPECT_EQ(write("still"), 0);
  EXPECT_EQ(read(), "still");
  EXPECT_EQ(set_mode(node_, 0400), 0);
  fuse_release_in done{};
  done.fh = handle_;
  EXPECT_EQ(error(FUSE_RELEASE, node_, bytes_of(done)), 0);
  EXPECT_EQ(set_mode(node_, 0600), ESTALE);
}

TEST_F(ShareTest, WhatIsNotKnownIsRefused) {
  EXPECT_EQ(error(9999, kRoot, "anything"), ENOSYS);
  EXPECT_EQ(error(FUSE_IOCTL, kRoot, ""), ENOSYS);
  EXPECT_EQ(look(77, "file"), 0U);
  EXPECT_EQ(reply_.error(), ESTALE);
  fuse_read_in wanted{};
  wanted.fh = 77;
  wanted.size = 10;
  EXPECT_EQ(error(FUSE_READ, kRoot, bytes_of(wanted)), EBADF);
}

TEST_F(ShareTest, WhatIsTooLargeIsMalformed) {
  fuse_in_header header{};
  for (const std::size_t size : {std::size_t{0}, sizeof header - 1, kLargestFuse + 1}) {
    header.len = static_cast<std::uint32_t>(size);
    EXPECT_EQ(fuse_size(header), 0U) << size;
  }
  ASSERT_EQ(create(kRoot, "file", 0600), 0);
  fuse_read_in wanted{};
  wanted.fh = handle_;
  wanted.size = kFuseData + 1;
  EXPECT_FALSE(ask(FUSE_READ, node_, bytes_of(wanted)));
  fuse_write_in more{};
  more.fh = handle_;
  more.size = 10;
  EXPECT_FALSE(ask(FUSE_WRITE, node_, bytes_of(more) + "four"));
  fuse_batch_forget_in many{};
  many.count = 1000;
  EXPECT_FALSE(ask(FUSE_BATCH_FORGET, kRoot, bytes_of(many)));
}

TEST_F(ShareTest, ThereAreOnlySoManyFilesAndHandles) {
  begin({.files = 4, .handles = 1});
  for (const char* name : {"a", "b", "c", "d"}) {
    put(name, "");
  }
  const std::uint64_t first = look(kRoot, "a");
  EXPECT_GT(look(kRoot, "b"), 0U);
  EXPECT_GT(look(kRoot, "c"), 0U);
  EXPECT_EQ(look(kRoot, "d"), 0U);
  EXPECT_EQ(reply_.error(), ENFILE);
  EXPECT_EQ(open(first, O_RDONLY), 0);
  EXPECT_EQ(open(first, O_RDONLY), ENFILE);
  EXPECT_EQ(share_->handles(), 1U);
  // What is forgotten makes room.
  EXPECT_TRUE(ask(FUSE_FORGET, first, bytes_of(fuse_forget_in{1})));
  EXPECT_TRUE(reply_.is_silent());
  EXPECT_GT(look(kRoot, "d"), 0U);
  EXPECT_EQ(share_->known(), 4U);
}

TEST_F(ShareTest, EveryEntryIsToldOnce) {
  std::set<std::string> expected = {".", ".."};
  for (int i = 0; i < 300; ++i) {
    put("file" + std::to_string(i), "");
    expected.insert("file" + std::to_string(i));
  }
  ASSERT_EQ(error(FUSE_OPENDIR, kRoot, bytes_of(fuse_open_in{})), 0);
  fuse_read_in wanted{};
  wanted.fh = answer<fuse_open_out>().fh;
  wanted.size = 1000;
  std::multiset<std::string> names;
  for (;;) {
    ASSERT_EQ(error(FUSE_READDIR, kRoot, bytes_of(wanted)), 0);
    EXPECT_LE(reply_.size(), wanted.size);
    FuseBody body(reply_.bytes());
    fuse_dirent entry{};
    if (body.at_end()) {
      break;
    }
    while (body.take(entry)) {
      names.emplace(body.rest().substr(0, entry.namelen));
      wanted.offset = entry.off;
      const std::size_t name = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen) - sizeof entry;
      body = FuseBody(body.rest().substr(name));
    }
  }
  EXPECT_EQ(std::multiset<std::string>(expected.begin(), expected.end()), names);
}

TEST_F(ShareTest, OnlyAttributesOfUsersAreKept) {
  put("file", "");
  const std::uint64_t file = look(kRoot, "file");
  const auto set = [&](const std::string& name) {
    const std::uint32_t head[2] = {5, 0};
    return error(FUSE_SETXATTR, file, bytes_of(head) + with_end(name) + "value");
  };
  for (const char* name : {"security.capability", "trusted.overlay.opaque", "user.overlay.opaque",
                           "system.posix_acl_access", "user.", ""}) {
    EXPECT_EQ(set(name), EOPNOTSUPP) << name;
  }
  if (set("user.note") == EOPNOTSUPP) {
    GTEST_SKIP() << "this file system has no extended attributes of users";
  }
  fuse_getxattr_in wanted{};
  wanted.size = 100;
  EXPECT_EQ(error(FUSE_GETXATTR, file, bytes_of(wanted) + with_end("user.note")), 0);
  EXPECT_EQ(reply_.bytes(), "value");
  EXPECT_EQ(error(FUSE_LISTXATTR, file, bytes_of(wanted)), 0);
  EXPECT_EQ(reply_.bytes(), with_end("user.note"));
  wanted.size = 2;
  EXPECT_EQ(error(FUSE_GETXATTR, file, bytes_of(wanted) + with_end("user.note")), ERANGE);
  EXPECT_EQ(error(FUSE_REMOVEXATTR, file, with_end("user.note")), 0);
  EXPECT_EQ(::getxattr((top_ + "/file").c_str(), "user.note", nullptr, 0), -1);
}

TEST_F(ShareTest, NothingIsWrittenLater) {
  fuse_init_in offered{};
  offered.major = FUSE_KERNEL_VERSION;
  offered.minor = 37;
  offered.flags = ~0U;
  ASSERT_EQ(error(FUSE_INIT, 0, bytes_of(offered)), 0);
  const auto told = answer<fuse_init_out>();
  EXPECT_EQ(told.flags & (FUSE_WRITEBACK_CACHE | FUSE_POSIX_ACL | FUSE_EXPORT_SUPPORT), 0U);
  EXPECT_EQ(told.max_write, kFuseData);
  offered.major = 6;
  EXPECT_EQ(error(FUSE_INIT, 0, bytes_of(offered)), EPROTO);
  EXPECT_FALSE(ask(FUSE_INIT, 0, "short"));
}

}  // namespace
}  // namespace carrel::microvm
