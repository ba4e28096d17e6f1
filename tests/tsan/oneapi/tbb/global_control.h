// Stand-in for ThreadSanitizer builds, see task_arena.h. The arenas alone decide here.
#pragma once

#include <cstddef>

namespace oneapi::tbb {

class global_control {
 public:
  enum parameter { max_allowed_parallelism };
  global_control(parameter, size_t) {}
  ~global_control() {}
};

}  // namespace oneapi::tbb
