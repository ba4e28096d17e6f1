// The thread that makes written shards durable: digest, fsync, rename, journal. It runs beside the
// stream so that waiting for the disk costs no throughput; at most two shards wait at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "checkpoint/output_file.h"
#include "convert/journal.h"

namespace blockscale {

class Finisher {
 public:
  struct Work {
    std::unique_ptr<OutputFile> file;
    FinishedShard shard;  // its digest is filled in here
  };

  // `journal` must outlive this; `finished` is called on the finisher's thread.
  Finisher(Journal& journal, const std::atomic<bool>* stop,
           std::function<void(const std::string&)> finished);
  ~Finisher();  // drops what has not begun

  // Waits while two shards are pending. After a failure, drops the work.
  void Add(Work work);
  // True after a failure or when the caller asked to stop: no more work is wanted.
  bool halted() const;
  // Waits for the pending work and returns the first error.
  Status Join();

 private:
  void Run();
  Status Finish(Work& work);

  Journal& journal_;
  const std::atomic<bool>* stop_;
  std::function<void(const std::string&)> finished_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool busy_ = false;
  bool closed_ = false;
  std::atomic<bool> failed_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace blockscale
