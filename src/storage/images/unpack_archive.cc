#include "storage/images/unpack_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/files.h"
#include "storage/images/layer.h"
#include "storage/images/tar_reader.h"

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

// What comes next of the stream that was compressed; nothing at its end.
Result<std::string_view> next_bytes(archive* stream) {
  const void* data = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  int code = ARCHIVE_OK;
  do {
    code = ::archive_read_data_block(stream, &data, &size, &offset);
  } while (size == 0 && (code == ARCHIVE_OK || code == ARCHIVE_WARN));
  if (code == ARCHIVE_EOF) {
    return std::string_view();
  }
  if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
    return archive_error(stream);
  }
  return std::string_view(static_cast<const char*>(data), size);
}

Error no_tar() {
  return Error{
      Code::kDenied, 0, "this is no tar archive, plain or compressed with gzip or zstd", {}};
}

// A compression, and the stream that it reads.
constexpr int kMostFilters = 2;

class Unpacker {
 public:
  Unpacker(const TarReader::Source& source, const Unpacking& job, Unpacked& result)
      : reader_(source), job_(job), result_(result), tree_(job.tree, job.limits) {}

  Status run() {
    for (;;) {
      auto entry = reader_.next();
      if (!entry.ok()) {
        return entry.error().code == Code::kInvalid ? no_tar() : entry.error();
      }
      if (!entry.value().has_value()) {
        return drain();
      }
      CARREL_TRY(take(*entry.value()));
      result_.entries = tree_.entries();
      result_.bytes = tree_.bytes();
    }
  }

 private:
  Status take(const TarEntry& entry) {
    CARREL_ASSIGN(const std::string path, normal_path(entry.path));
    CARREL_ASSIGN(const Whiteout whiteout, whiteout_of(path));
    if (whiteout.kind != Whiteout::Kind::kNone) {
      CARREL_TRY(tree_.count_entry(path));
      return whiteout.kind == Whiteout::Kind::kIgnored
                 ? Status{}
                 : write_all(job_.whiteouts, encode_whiteout(whiteout));
    }
    result_.left_out.attributes += entry.has_attributes ? 1U : 0U;
    return make(entry, path);
  }

  Status make(const TarEntry& entry, const std::string& path) {
    const unsigned set_ids = (entry.mode & 06000U) != 0 ? 1U : 0U;
    switch (entry.kind) {
      case TarEntry::Kind::kDirectory:
        result_.left_out.set_ids += set_ids;
        return tree_.directory(path);
      case TarEntry::Kind::kSymbolicLink:
        return tree_.symbolic_link(path, entry.target);
      case TarEntry::Kind::kHardLink: {
        CARREL_ASSIGN(const std::string to, normal_path(entry.target));
        return tree_.hard_link(path, to);
      }
      case TarEntry::Kind::kFile:
        result_.left_out.set_ids += set_ids;
        return file(entry, path);
      case TarEntry::Kind::kOther:
        break;
    }
    ++result_.left_out.devices;
    return tree_.count_entry(path);
  }

  Status file(const TarEntry& entry, const std::string& path) {
    CARREL_ASSIGN(UniqueFd made, tree_.file(path, entry.mode, entry.size));
    for (;;) {
      CARREL_ASSIGN(const TarReader::Data data, reader_.data());
      if (data.bytes.empty()) {
        break;
      }
      CARREL_TRY(write_at(made.get(), data.bytes, static_cast<off_t>(data.offset), path));
    }
    if (::ftruncate(made.get(), static_cast<off_t>(entry.size)) != 0) {
      return system_error("write '" + path + "'");
    }
    const std::array<timespec, 2> times = {entry.modified, entry.modified};
    ::futimens(made.get(), times.data());  // a time that the file system cannot keep is no loss
    return {};
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

  TarReader reader_;
  const Unpacking& job_;
  Unpacked& result_;
  TreeWriter tree_;
};

}  // namespace

Status unpack_archive(const Unpacking& job, Unpacked& result) {
  const Reader stream(::archive_read_new());
  auto input = std::make_unique<Input>();
  input->fd = job.input;
  if (!stream || ::archive_read_support_filter_gzip(stream.get()) != ARCHIVE_OK ||
      ::archive_read_support_filter_zstd(stream.get()) != ARCHIVE_OK ||
      ::archive_read_support_format_raw(stream.get()) != ARCHIVE_OK) {
    return Error{Code::kResource, 0, "the unpacker cannot start", {}};
  }
  archive_entry* all = nullptr;
  if (::archive_read_open(stream.get(), input.get(), nullptr, read_input, nullptr) != ARCHIVE_OK) {
    return no_tar();
  }
  if (::archive_filter_count(stream.get()) > kMostFilters) {
    return Error{Code::kDenied, 0, "the archive is compressed more than once", {}};
  }
  if (::archive_read_next_header(stream.get(), &all) != ARCHIVE_OK) {
    return no_tar();
  }
  return Unpacker([&stream] { return next_bytes(stream.get()); }, job, result).run();
}

}  // namespace carrel::storage
