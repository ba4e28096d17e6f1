#include "convert/finisher.h"

#include <utility>

namespace blockscale {
namespace {

constexpr size_t kMaxPending = 2;

}  // namespace

Finisher::Finisher(Journal& journal, const std::atomic<bool>* stop,
                   std::function<void(const std::string&)> finished)
    : journal_(journal), stop_(stop), finished_(std::move(finished)), thread_([this] { Run(); }) {}

Finisher::~Finisher() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Finisher::halted() const { return failed_ || (stop_ != nullptr && stop_->load()); }

void Finisher::Add(Work work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || queue_.size() + busy_ < kMaxPending; });
  if (failed_) return;
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

Status Finisher::Join() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return status_;
}

void Finisher::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    Status status = Finish(work);
    work.file.reset();  // removes its partial after a failure
    lock.lock();
    busy_ = false;
    if (!status.ok()) {
      status_ = std::move(status);
      failed_ = true;
      queue_.clear();
    }
    changed_.notify_all();
    if (failed_) return;
  }
}

Status Finisher::Finish(Work& work) {
  const auto stopped = [&] { return stop_ != nullptr && stop_->load(); };
  BLOCKSCALE_ASSIGN_OR_RETURN(work.shard.digest, work.file->Digest(work.shard.bytes, stopped));
  BLOCKSCALE_RETURN_IF_ERROR(work.file->Flush(work.shard.bytes, stopped));
  BLOCKSCALE_RETURN_IF_ERROR(work.file->Commit());
  std::string name = work.shard.name;
  BLOCKSCALE_RETURN_IF_ERROR(journal_.AddShard(std::move(work.shard)));
  if (finished_) finished_(name);
  return OkStatus();
}

}  // namespace blockscale
