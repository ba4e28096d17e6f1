// Stand-in for ThreadSanitizer builds, see task_arena.h. A pipeline of stages that hand on
// pointers: one item's stages follow each other, a serial stage sees the items in order, one at a
// time.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "oneapi/tbb/task_arena.h"

namespace oneapi::tbb {

enum class filter_mode { parallel, serial_in_order };

class flow_control {
 public:
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  bool stopped_ = false;
};

namespace detail {

struct Stage {
  filter_mode mode;
  std::function<void*(void*, flow_control&)> run;
};

// Lets the items through one at a time, by their numbers.
class Turnstile {
 public:
  template <typename Body>
  void Pass(size_t number, const Body& body) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return next_ == number; });
    body();
    ++next_;
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  size_t next_ = 0;
};

class Pipeline {
 public:
  explicit Pipeline(const std::vector<Stage>& stages) : stages_(stages), gates_(stages.size()) {}

  void Run(size_t threads) {
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : others) thread.join();
  }

 private:
  // Takes one item at a time through every stage, until the first one stops.
  void Work() {
    for (;;) {
      size_t number;
      void* item;
      {
        const std::lock_guard lock(input_);
        if (control_.stopped()) return;
        item = stages_[0].run(nullptr, control_);
        if (control_.stopped()) return;
        number = items_++;
      }
      for (size_t stage = 1; stage < stages_.size(); ++stage) {
        const auto run = [&] { item = stages_[stage].run(item, control_); };
        if (stages_[stage].mode == filter_mode::parallel)
          run();
        else
          gates_[stage].Pass(number, run);
      }
    }
  }

  const std::vector<Stage>& stages_;
  std::vector<Turnstile> gates_;
  std::mutex input_;  // guards what follows, and the first stage
  flow_control control_;
  size_t items_ = 0;
};

}  // namespace detail

template <typename In, typename Out>
struct filter {
  std::vector<detail::Stage> stages;
};

template <typename In, typename Middle, typename Out>
filter<In, Out> operator&(filter<In, Middle> first, const filter<Middle, Out>& second) {
  first.stages.insert(first.stages.end(), second.stages.begin(), second.stages.end());
  return {std::move(first.stages)};
}

template <typename In, typename Out, typename Body>
filter<In, Out> make_filter(filter_mode mode, const Body& body) {
  static_assert(std::is_void_v<In> || std::is_pointer_v<In>, "the stand-in carries pointers");
  static_assert(std::is_void_v<Out> || std::is_pointer_v<Out>, "the stand-in carries pointers");
  return {{{mode, [body](void* item, flow_control& control) -> void* {
              if constexpr (std::is_void_v<In>) {
                return body(control);
              } else if constexpr (std::is_void_v<Out>) {
                body(static_cast<In>(item));
                return nullptr;
              } else {
                return body(static_cast<In>(item));
              }
            }}}};
}

// The first stage is serial here whatever its mode; `tokens` bounds the threads, each of which
// holds one item.
inline void parallel_pipeline(size_t tokens, const filter<void, void>& chain) {
  detail::Pipeline(chain.stages).Run(std::min<size_t>(tokens, detail::Threads()));
}

}  // namespace oneapi::tbb
