#include "core/store/attachment.hpp"

#include "core/memory/spill_file.hpp"
#include "core/memory/wake.hpp"

namespace tq {

namespace {

constexpr PartitionId room_id = ~PartitionId{0};

PartitionId word_id(const std::string& partition) noexcept {
  const std::uint64_t hash = layout::fnv1a(partition);
  return static_cast<PartitionId>(hash ^ hash >> 32);
}

std::shared_ptr<ControlSegment> attach_control(const SessionFiles& files) {
  auto control = std::make_shared<ControlSegment>(files.control_fd, files.session);
  if (control->ended()) {
    Error error(ErrorCode::session_not_found, "session '" + files.session + "' has ended; start one with init()");
    error.names.push_back(files.session);
    throw error;
  }
  return control;
}

// What views and answers co-own, which outlive the attachment.
struct Segments {
  std::shared_ptr<ControlSegment> control;
  PayloadSegment payload;
  std::optional<SpillFile> spill;
};

std::shared_ptr<PayloadSegment> attach_payload(const SessionFiles& files, std::shared_ptr<ControlSegment> control) {
  const std::shared_ptr<Segments> all(
      new Segments{std::move(control), PayloadSegment(files.payload_fd, files.session), std::nullopt});
  if (files.spill_fd >= 0) {
    all->spill.emplace(files.spill_fd, files.session, all->payload);
    all->payload.set_spill(&*all->spill);
  } else if (all->payload.spill_id() != 0) {
    throw Error(ErrorCode::corrupt, "session '" + files.session + "' has a spill file, and it was not given to attach to");
  }
  return {all, &all->payload};
}

void check_size(const char* what, std::uint64_t in_index, std::uint64_t found, const std::string& session) {
  const std::uint64_t expected = (in_index + page_bytes() - 1) / page_bytes() * page_bytes();
  if (expected == found) return;
  throw Error(ErrorCode::corrupt, "the index of session '" + session + "' expects a " + what + " of " + std::to_string(expected) +
                                      " bytes, and it has " + std::to_string(found));
}

}  // namespace

Attachment::Attachment(const SessionFiles& files)
    : session(files.session),
      lease_path(files.directory + "/leases"),
      control(attach_control(files)),
      payload(attach_payload(files, control)),
      table(files.table_fd, files.session),
      leases(LeaseFile::create(lease_path, control)),
      lease_directory(lease_path, control),
      give_back(std::make_shared<GiveBack>()),
      judge(lease_directory),
      gate(control),
      index_(std::make_unique<Index>(files.directory + "/index", gate, judge)) {
  give_back->leases = leases;
  check_size("payload segment", index_->payload_bytes(), payload->size_bytes(), session);
  check_size("spill file", index_->spill_bytes(), payload->spill() == nullptr ? 0 : payload->spill()->size_bytes(), session);
}

Attachment::~Attachment() { close(); }

void Attachment::close() {
  const OperationGuard operation;
  closed_.store(true, std::memory_order_release);  // first, so that new calls do not keep us waiting
  const std::unique_lock lock(in_use_);
  // In a child that never made a call this closes the inherited environment, which is all it may do with it.
  index_.reset();
  give_back.reset();
  leases.reset();
  payload.reset();  // views, pending blocks and answers have a share of their own: a closed session that somebody still names keeps no memory
}

void Attachment::after_fork_in_child() noexcept {
  gate.after_fork_in_child();
  control->counters().after_fork_in_child();
  stock.forget();
  claimed.store(false, std::memory_order_relaxed);  // the parent's, under another lease file
  reopen_.store(true, std::memory_order_release);
}

Call::Call(Attachment& attachment, Needs needs) : attachment_(attachment), in_use_(attachment.in_use_) {
  if (attachment.closed() || !attachment.index_) {
    Error error(ErrorCode::closed, "session '" + attachment.session + "' was closed in this process");
    error.names.push_back(attachment.session);
    throw error;
  }
  if (needs == Needs::session && attachment.control->ended()) {
    Error error(ErrorCode::session_not_found,
                "session '" + attachment.session + "' was ended by its creator; views held stay readable");
    error.names.push_back(attachment.session);
    throw error;
  }
  if (needs == Needs::mappings) return;
  attachment.index_->check_descriptor();
  if (attachment.reopen_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(attachment.reopening_);
    if (attachment.reopen_.load(std::memory_order_relaxed)) {
      attachment.index_->reopen_in_child();
      attachment.reopen_.store(false, std::memory_order_release);
    }
  }
}

std::atomic<std::uint32_t>& room_word(ControlSegment& control) noexcept { return control.partition_word(room_id); }

std::atomic<std::uint32_t>& partition_word(ControlSegment& control, const std::string& partition) noexcept {
  return control.partition_word(word_id(partition));
}

void wake_partition(ControlSegment& control, const std::string& partition) noexcept {
  bump_word(partition_word(control, partition));
  bump_word(control.session_word());
}

void wake_partitions(ControlSegment& control, const std::vector<std::string>& partitions) noexcept {
  for (const std::string& partition : partitions) wake_partition(control, partition);
}

}  // namespace tq
