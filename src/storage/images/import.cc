#include "storage/images/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "base/files.h"
#include "base/sha256.h"
#include "storage/images/image_store.h"
#include "storage/images/layer.h"
#include "storage/images/layout.h"
#include "storage/state.h"

namespace carrel::storage {

namespace {

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t before_;
};

// The name of an image from the name of its file: "/x/debian-12.tar.gz" is "debian-12".
std::string name_from_file(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.pop_back();
  }
  path = path.substr(path.rfind('/') + 1);
  for (const std::string_view ending : {".gz", ".zst", ".tgz", ".tzst", ".tar", ".oci"}) {
    if (path.ends_with(ending)) {
      path.erase(path.size() - ending.size());
    }
  }
  return path;
}

void add(LeftOut& sum, const LeftOut& more) {
  sum.devices += more.devices;
  sum.set_ids += more.set_ids;
  sum.attributes += more.attributes;
  sum.mounts += more.mounts;
}

class Import {
 public:
  Import(ImageStore& store, const ImportRequest& request) : store_(store), request_(request) {}

  Result<std::vector<Imported>> run() {
    CARREL_TRY(find_room());
    UniqueFd source(request_.source == "-"
                        ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                        : ::open(request_.source.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    struct stat info{};
    if (!source.valid() || ::fstat(source.get(), &info) != 0) {
      Error error = system_error("open '" + request_.source + "'");
      error.code = errno == ENOENT ? Code::kNotFound : Code::kSystem;
      return error;
    }
    auto imported = S_ISDIR(info.st_mode) ? from_directory(source) : from_archive(source);
    if (!imported.ok()) {
      imported.error().message = "import '" + request_.source + "': " + imported.error().message;
    }
    return imported;
  }

  Result<Imported> run_found(const FoundImage& image, int directory) {
    CARREL_TRY(find_room());
    CARREL_ASSIGN(const std::vector<Imported> imported, take_all({image}, directory));
    return imported.front();
  }

 private:
  // An import may take half of what is free, and never more than an image can be.
  Status find_room() {
    struct statvfs space{};
    if (::fstatvfs(store_.drafts(), &space) != 0) {
      return system_error("look at the disk of the images");
    }
    limits_.bytes = std::min<std::uint64_t>(
        limits_.bytes, std::uint64_t{space.f_bavail} * std::uint64_t{space.f_frsize} / 2);
    return {};
  }

  Result<UniqueFd> open_draft(const std::string& draft) const {
    return open_at(store_.drafts(), draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

  Result<std::vector<Imported>> from_directory(const UniqueFd& source) {
    CARREL_ASSIGN(const std::vector<FoundImage> found, read_layout(source.get()));
    if (!found.empty()) {
      return take_all(found, source.get());
    }
    CARREL_ASSIGN(const std::string draft, store_.make_draft());
    CARREL_ASSIGN(UniqueFd layer, open_draft(draft));
    if (::mkdirat(layer.get(), "tree", 0755) != 0) {
      return system_error("make the layer's tree");
    }
    CARREL_ASSIGN(UniqueFd tree, open_at(layer.get(), "tree", O_RDONLY | O_DIRECTORY));
    CARREL_TRY(replace_file_at(layer.get(), "whiteouts", "", 0600));
    TreeWriter writer(tree.get(), limits_);
    Sha256 hash;
    LeftOut left_out;
    CARREL_TRY(copy_tree(source.get(), writer, left_out, {&hash, store_.directory()}));
    return take_only_layer(draft, hash.finish(), writer.entries(), left_out);
  }

  // The archive is unpacked in any case. Then it is a layer, or it has images in it.
  Result<std::vector<Imported>> from_archive(const UniqueFd& source) {
    CARREL_ASSIGN(const std::string draft, store_.make_draft());
    CARREL_ASSIGN(UniqueFd layer, open_draft(draft));
    CARREL_ASSIGN(const UnpackedLayer unpacked, unpack_layer(source.get(), layer.get(), limits_,
                                                             "the archive", request_.listener));
    CARREL_ASSIGN(UniqueFd tree, open_at(layer.get(), "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    CARREL_ASSIGN(const std::vector<FoundImage> found, read_layout(tree.get()));
    if (found.empty()) {
      return take_only_layer(draft, unpacked.digest, unpacked.contents.entries,
                             unpacked.contents.left_out);
    }
    CARREL_ASSIGN(std::vector<Imported> imported, take_all(found, tree.get()));
    CARREL_TRY(remove_tree_at(store_.drafts(), draft));
    return imported;
  }

  Result<std::vector<Imported>> take_only_layer(const std::string& draft, const std::string& digest,
                                                std::uint64_t entries, const LeftOut& left_out) {
    if (entries == 0) {
      return Error{Code::kDenied, 0, "there are no files in it", {}};
    }
    CARREL_TRY(store_.publish_layer(draft, digest));
    FoundImage image;
    image.digest = digest;
    image.layers = {{digest, {}}};
    CARREL_ASSIGN(const std::vector<std::string> names, names_of(image));
    left_out_ = left_out;
    return put_together(image, names);
  }

  Result<std::vector<Imported>> take_all(const std::vector<FoundImage>& found, int directory) {
    if (found.size() > 1 && !request_.name.empty()) {
      return Error{Code::kInvalid, 0, "there are " + std::to_string(found.size()) + " images in it",
                   "leave --name away, and they keep their own names"};
    }
    std::vector<Imported> all;
    for (const FoundImage& image : found) {
      CARREL_ASSIGN(const std::vector<std::string> names, names_of(image));
      left_out_ = {};
      for (std::size_t i = 0; i < image.layers.size(); ++i) {
        CARREL_TRY(take_layer(
            image.layers[i], directory,
            "layer " + std::to_string(i + 1) + " of " + std::to_string(image.layers.size())));
      }
      CARREL_ASSIGN(std::vector<Imported> imported, put_together(image, names));
      all.insert(all.end(), imported.begin(), imported.end());
    }
    return all;
  }

  Status take_layer(const FoundLayer& layer, int directory, const std::string& what) {
    if (store_.has_layer(layer.digest)) {
      return {};
    }
    CARREL_ASSIGN(UniqueFd blob, open_file_below(directory, layer.path));
    CARREL_ASSIGN(const std::string draft, store_.make_draft());
    CARREL_ASSIGN(UniqueFd made, open_draft(draft));
    auto unpacked = unpack_layer(blob.get(), made.get(), limits_, what, request_.listener);
    if (!unpacked.ok()) {
      unpacked.error().message = what + ": " + unpacked.error().message;
      return unpacked.error();
    }
    if (unpacked.value().digest != layer.digest) {
      return Error{Code::kDenied, 0, what + " does not have the digest that it should have",
                   "the archive is damaged, or somebody changed it"};
    }
    add(left_out_, unpacked.value().contents.left_out);
    return store_.publish_layer(draft, layer.digest);
  }

  Result<std::vector<std::string>> names_of(const FoundImage& image) const {
    std::vector<std::string> names = image.names;
    if (!request_.name.empty()) {
      names = {request_.name};
    } else if (names.empty()) {
      names = {name_from_file(request_.source)};
    }
    for (const std::string& name : names) {
      if (!is_image_name(name)) {
        return Error{Code::kInvalid, 0, "'" + name + "' is not the name of an image",
                     "give it one with --name"};
      }
    }
    return names;
  }

  // Puts the layers over one another into a root of the image's own, and writes down that it is
  // there.
  Result<std::vector<Imported>> put_together(const FoundImage& image,
                                             const std::vector<std::string>& names) {
    CARREL_ASSIGN(const std::string root, store_.make_draft());
    CARREL_ASSIGN(UniqueFd directory, open_draft(root));
    TreeWriter writer(directory.get(), limits_);
    for (const FoundLayer& layer : image.layers) {
      CARREL_ASSIGN(UniqueFd from, store_.open_layer(layer.digest));
      CARREL_TRY(apply_layer(from.get(), writer));
    }
    CARREL_TRY(store_.publish_root(root, root));
    std::vector<Imported> imported;
    for (const std::string& name : names) {
      ImageRecord record;
      record.name = name;
      record.digest = image.digest;
      for (const FoundLayer& layer : image.layers) {
        record.layers.push_back(layer.digest);
      }
      record.root = root;
      record.source = image.source;
      record.index_digest = image.index_digest;
      record.bytes = writer.bytes();
      record.entries = writer.entries();
      record.created_ms = wall_clock_ms();
      record.config = image.config;
      CARREL_TRY(store_.publish_record(record));
      imported.push_back({std::move(record), left_out_});
    }
    return imported;
  }

  ImageStore& store_;
  const ImportRequest& request_;
  TreeLimits limits_;
  LeftOut left_out_;
};

}  // namespace

Result<std::vector<Imported>> import_image(const Home& home, const ImportRequest& request) {
  const Umask ordinary(022);
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  CARREL_TRY(store.lock());
  CARREL_TRY(store.sweep());
  auto imported = Import(store, request).run();
  // A failed import leaves drafts and layers; a new root has taken the place of an old one.
  (void)store.sweep();
  return imported;
}

Result<Imported> import_found(const Home& home, const FoundImage& image, int directory,
                              const ImportRequest& request) {
  const Umask ordinary(022);
  CARREL_ASSIGN(ImageStore store, ImageStore::open(home));
  CARREL_TRY(store.lock());
  auto imported = Import(store, request).run_found(image, directory);
  (void)store.sweep();
  return imported;
}

}  // namespace carrel::storage
