#include "storage/images/unpack_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstring>
#include <memory>

#include "base/files.h"
#include "storage/images/layer.h"

namespace carrel::storage {

namespace {

struct FreeArchive {
  void operator()(archive* reader) const { ::archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, FreeArchive>;

struct Input {
  int fd = -1;
  std::array<char, 256 << 10> buffer{};
};

la_ssize_t read_input(archive* reader, void* data, const void** buffer) {
  auto* input = static_cast<Input*>(data);
  ssize_t n = 0;
  do {
    n = ::read(input->fd, input->buffer.data(), input->buffer.size());
  } while (n < 0 && errno == EINTR);
  *buffer = input->buffer.data();
  if (n < 0) {
    ::archive_set_error(reader, errno, "cannot read the archive");
  }
  return n;
}

Error archive_error(archive* reader) {
  const char* text = ::archive_error_string(reader);
  return Error{
      Code::kDenied,
      0,
      std::string("the archive is damaged: ") + (text != nullptr ? text : "it cannot be read"),
      {}};
}

class Unpacker {
 public:
  Unpacker(archive* reader, const Unpacking& job, Unpacked& result)
      : reader_(reader), job_(job), result_(result), tree_(job.tree, job.limits) {}

  Status run() {
    archive_entry* entry = nullptr;
    for (;;) {
      const int code = ::archive_read_next_header(reader_, &entry);
      if (code == ARCHIVE_EOF) {
        return drain();
      }
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
        return archive_error(reader_);
      }
      CARREL_TRY(take(entry, code));
      result_.entries = tree_.entries();
      result_.bytes = tree_.bytes();
    }
  }

 private:
  Status take(archive_entry* entry, int code) {
    const char* raw = ::archive_entry_pathname(entry);
    if (raw == nullptr || (code == ARCHIVE_WARN && !names_are_utf8())) {
      return Error{Code::kUnsupported, 0, "a name in the archive cannot be read",
                   "it is not ASCII, and this host has no UTF-8 locale such as C.UTF-8"};
    }
    CARREL_ASSIGN(const std::string path, normal_path(raw));
    CARREL_ASSIGN(const Whiteout whiteout, whiteout_of(path));
    if (whiteout.kind != Whiteout::Kind::kNone) {
      CARREL_TRY(tree_.count_entry(path));
      return whiteout.kind == Whiteout::Kind::kIgnored
                 ? Status{}
                 : write_all(job_.whiteouts, encode_whiteout(whiteout));
    }
    result_.left_out.attributes += ::archive_entry_xattr_count(entry) > 0 ? 1U : 0U;
    if (const char* target = ::archive_entry_hardlink(entry); target != nullptr) {
      CARREL_ASSIGN(const std::string to, normal_path(target));
      return tree_.hard_link(path, to);
    }
    return make(entry, path);
  }

  Status make(archive_entry* entry, const std::string& path) {
    const auto mode = static_cast<unsigned>(::archive_entry_perm(entry));
    switch (::archive_entry_filetype(entry)) {
      case AE_IFDIR:
        result_.left_out.set_ids += (mode & 06000U) != 0 ? 1U : 0U;
        return tree_.directory(path);
      case AE_IFLNK: {
        const char* target = ::archive_entry_symlink(entry);
        return tree_.symbolic_link(path, target != nullptr ? target : "");
      }
      case AE_IFREG:
        result_.left_out.set_ids += (mode & 06000U) != 0 ? 1U : 0U;
        return file(entry, path, mode);
      default:
        ++result_.left_out.devices;
        return tree_.count_entry(path);
    }
  }

  Status file(archive_entry* entry, const std::string& path, unsigned mode) {
    const la_int64_t size = ::archive_entry_size(entry);
    if (size < 0) {
      return Error{Code::kDenied, 0, "'" + path + "' has a negative size", {}};
    }
    CARREL_ASSIGN(UniqueFd made, tree_.file(path, mode, static_cast<std::uint64_t>(size)));
    const void* data = nullptr;
    std::size_t length = 0;
    la_int64_t offset = 0;
    for (;;) {
      const int code = ::archive_read_data_block(reader_, &data, &length, &offset);
      if (code == ARCHIVE_EOF) {
        break;
      }
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
        return archive_error(reader_);
      }
      if (offset < 0 || offset > size || length > static_cast<std::size_t>(size - offset)) {
        return Error{Code::kDenied, 0, "'" + path + "' is longer than it says", {}};
      }
      CARREL_TRY(write_at(made.get(), {static_cast<const char*>(data), length}, offset, path));
    }
    if (::ftruncate(made.get(), size) != 0) {
      return system_error("write '" + path + "'");
    }
    const std::array<timespec, 2> times = {time_of(entry), time_of(entry)};
    ::futimens(made.get(), times.data());  // a time that the file system cannot keep is no loss
    return {};
  }

  static timespec time_of(archive_entry* entry) {
    return {::archive_entry_mtime(entry), ::archive_entry_mtime_nsec(entry)};
  }

  static Status write_at(int fd, std::string_view data, off_t offset, const std::string& path) {
    while (!data.empty()) {
      const ssize_t n = ::pwrite(fd, data.data(), data.size(), offset);
      if (n < 0 && errno != EINTR) {
        return system_error("write '" + path + "'");
      }
      if (n > 0) {
        data.remove_prefix(static_cast<std::size_t>(n));
        offset += n;
      }
    }
    return {};
  }

  // Whoever sends the archive hashes all of it, also what follows its end.
  Status drain() const {
    std::array<char, 16 << 10> rest{};
    ssize_t n = 0;
    do {
      n = ::read(job_.input, rest.data(), rest.size());
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n == 0 ? Status{} : Status{system_error("read the archive")};
  }

  static bool names_are_utf8() { return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0; }

  archive* reader_;
  const Unpacking& job_;
  Unpacked& result_;
  TreeWriter tree_;
};

}  // namespace

void prepare_unpacking() {
  for (const char* name : {"C.UTF-8", "C.utf8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) != nullptr) {
      return;
    }
  }
}

Status unpack_archive(const Unpacking& job, Unpacked& result) {
  Reader reader(::archive_read_new());
  auto input = std::make_unique<Input>();
  input->fd = job.input;
  if (!reader || ::archive_read_support_filter_gzip(reader.get()) != ARCHIVE_OK ||
      ::archive_read_support_filter_zstd(reader.get()) != ARCHIVE_OK ||
      ::archive_read_support_format_tar(reader.get()) != ARCHIVE_OK) {
    return Error{Code::kResource, 0, "the unpacker cannot start", {}};
  }
  if (::archive_read_open(reader.get(), input.get(), nullptr, read_input, nullptr) != ARCHIVE_OK) {
    return Error{
        Code::kDenied, 0, "this is no tar archive, plain or compressed with gzip or zstd", {}};
  }
  Status done = Unpacker(reader.get(), job, result).run();
  reader.reset();
  return done;
}

}  // namespace carrel::storage
