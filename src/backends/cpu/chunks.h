// Work cut into as many contiguous parts as there are threads, so that each thread reads its share
// of the weights strictly forward.
#pragma once

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstddef>

namespace blockscale::cpu {

// body(first, last) for each part of [0, count). What a body keeps from item to item is its own.
template <typename Body>
void ForChunks(size_t count, const Body& body) {
  const auto threads = static_cast<size_t>(oneapi::tbb::this_task_arena::max_concurrency());
  const size_t parts = std::min(count, std::max<size_t>(1, threads));
  if (parts == 0) return;
  oneapi::tbb::parallel_for(size_t{0}, parts, [&](size_t part) {
    body(count * part / parts, count * (part + 1) / parts);
  });
}

// body(i) for each i of [0, count), likewise.
template <typename Body>
void ForEach(size_t count, const Body& body) {
  ForChunks(count, [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) body(i);
  });
}

}  // namespace blockscale::cpu
