// A stand-in for the part of oneTBB that blockscale uses, for ThreadSanitizer builds alone: the
// packaged libtbb is not instrumented, so that every hand-off between its threads would be reported
// as a race. Here each one that TBB's documentation promises is a mutex or a join, and there are no
// others: what is reported is a race of ours.
#pragma once

#include <algorithm>
#include <thread>

namespace oneapi::tbb {

namespace detail {
// Threads of the arena that this thread is in. At least 4, so that two cores show races too.
inline thread_local int arena_threads = 0;
inline int Threads() {
  if (arena_threads > 0) return arena_threads;
  return std::max(4, static_cast<int>(std::thread::hardware_concurrency()));
}
}  // namespace detail

namespace this_task_arena {
inline int max_concurrency() { return detail::Threads(); }
}  // namespace this_task_arena

class task_arena {
 public:
  explicit task_arena(int threads) : threads_(threads) {}

  template <typename Body>
  auto execute(const Body& body) {
    struct Restore {
      int before;
      ~Restore() { detail::arena_threads = before; }
    } restore{detail::arena_threads};
    detail::arena_threads = threads_;
    return body();
  }

 private:
  int threads_;
};

}  // namespace oneapi::tbb
