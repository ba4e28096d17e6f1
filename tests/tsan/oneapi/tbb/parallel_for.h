// Stand-in for ThreadSanitizer builds, see task_arena.h.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "oneapi/tbb/task_arena.h"

namespace oneapi::tbb {

// Indices are handed out without ordering the bodies: two of them share nothing but what they lock.
template <typename Index, typename Body>
void parallel_for(Index first, Index last, const Body& body) {
  std::atomic<Index> next = first;
  const auto work = [&] {
    for (Index i; (i = next.fetch_add(1, std::memory_order_relaxed)) < last;) body(i);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < detail::Threads(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace oneapi::tbb
