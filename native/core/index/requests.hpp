// Requests: changes that a caller may ask for again without knowing whether they were made, as it heard no answer.
//
// The caller numbers what it asks for with 16 bytes of its own choice and arms the thread with them. The next transaction of this
// thread that changes what callers see (a publication, marks, claims, clears, tags, limits; not the reserving and giving back of room,
// nor the batches of a clear) writes down the number together with what it did. Whoever arms the same number later, in whatever
// process, finds it at the beginning of its own transaction, which changes nothing: Error(already_applied).
//
// Two tables: id -> RequestRecord, and the order of their making -> (time, id), from whose front they
// are removed. Numbers of the order are consecutive, so their count is a subtraction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/index/armed_request.hpp"
#include "core/index/request_record.hpp"
#include "core/index/txn.hpp"
#include "core/types.hpp"

namespace tq::index {

// The most that are kept: one a page of the index.
std::uint64_t most_requests(const Env& env);
inline constexpr std::int64_t request_kept_ns = 600'000'000'000;

std::optional<RequestRecord> find_request(const Txn& txn, const RequestId& id);
// Error(already_applied) when it is on record.
void refuse_applied(const Txn& txn, const RequestId& id);
// Writes `done` down under the armed number, and removes a few old ones.
void record_request(WriteTxn& txn, const ArmedRequest& armed, RequestRecord done, std::int64_t now_ns);
// Whether drop_requests would remove one now.
bool has_old_request(const Txn& txn, std::int64_t now_ns);
// Removes up to `most` of those that are too old or too many, oldest first; returns how many.
std::size_t drop_requests(WriteTxn& txn, std::int64_t now_ns, std::size_t most);

// What stands in both tables, each against the other: Error(corrupt).
void check_requests(const Txn& txn, const Counters& counters);

}  // namespace tq::index
