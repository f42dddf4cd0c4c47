#pragma once

#include <cstddef>
#include <list>
#include <mutex>

#include "server/access.h"

namespace carrel::server {

// Requests that a token let in, for as long as they are served: when tokens change, those whose
// token was taken back are cut off.
class Admitted {
 public:
  // One of them. The socket is open until the end of it.
  class Stay {
   public:
    Stay(Admitted& all, const Access::Identity& identity, int socket);
    ~Stay();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    friend class Admitted;
    Admitted& all_;
    const Access::Identity& identity_;
    int socket_;
    std::list<const Stay*>::iterator place_;
  };

  // Ends the connections of those that would not be let in now; how many they were.
  std::size_t cut_off(const Access& access);

 private:
  std::mutex mutex_;
  std::list<const Stay*> stays_;
};

}  // namespace carrel::server
