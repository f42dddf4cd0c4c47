#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/frame.h"

namespace carrel::sandbox {

// One frame from a file worker. The payload is hostile, and valid until the next one is asked for.
struct FileFrame {
  protocol::FrameType type = protocol::FrameType::kFileDone;
  std::string_view payload;
};

// The host's end of the connection to a file worker: frames in both directions through two buffers
// of fixed size, so that contents are copied once on their way. A worker that neither takes nor
// gives anything for the patience is kTimeout, one that ends is kGone.
class FileStream {
 public:
  explicit FileStream(UniqueFd fd);

  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  // Called with frames that come while something is sent. An error ends the sending.
  void set_early(std::function<Status(const FileFrame&)> early) { early_ = std::move(early); }

  // Gathers; what was gathered is sent by flush(), and when there is enough.
  Status send(protocol::FrameType type, std::string_view payload = {});
  // A place for up to kFilePiece bytes of contents, and the sending of those that were put there.
  Result<char*> place();
  void placed(std::size_t size);
  Status flush();

  // Waits for the next frame. kGone when the worker ended, or sent what is not a frame.
  Result<FileFrame> next();
  // Becomes readable when something has come; for a caller who waits for other things, too.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Whether a whole frame is here already.
  Result<bool> has_frame();

 private:
  Result<bool> take(FileFrame& frame);
  Status fill();
  Status wait_to_send();

  UniqueFd fd_;
  std::chrono::milliseconds patience_{60'000};
  std::function<Status(const FileFrame&)> early_;
  std::unique_ptr<char[]> in_;
  std::size_t in_start_ = 0;
  std::size_t in_end_ = 0;
  std::unique_ptr<char[]> out_;
  std::size_t out_size_ = 0;
  bool deaf_ = false;  // the worker takes nothing any more
};

}  // namespace carrel::sandbox
