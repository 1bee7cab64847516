#include "core/index/limit_check.hpp"

namespace tq::index {
namespace {

std::string text(std::uint64_t value) { return std::to_string(value); }

// "'train' consumed", or what else a row counts until.
std::string until(const PartitionLimits& limits) {
  if (limits.consumers.empty()) return "some task consumed";
  std::string names;
  for (const std::string& task : limits.consumers) names += (names.empty() ? "'" : "', '") + task;
  return names + "'" + (limits.consumers.size() == 1 ? " consumed" : " all consumed");
}

}  // namespace

std::optional<Excess> find_excess(const PartitionLimits& limits, const Demand& demand) {
  if (limits.max_bytes && demand.bytes_after > demand.bytes_before && demand.bytes_after > *limits.max_bytes) {
    return Excess{"max_bytes", *limits.max_bytes, demand.bytes_before, demand.bytes_after - demand.bytes_before,
                  demand.own_bytes > *limits.max_bytes};
  }
  if (limits.max_unconsumed_rows && demand.new_rows > 0) {
    const auto wanted = static_cast<std::uint64_t>(demand.new_rows);
    const auto there = static_cast<std::uint64_t>(demand.rows_before);
    if (there + wanted > *limits.max_unconsumed_rows) {
      return Excess{"max_unconsumed_rows", *limits.max_unconsumed_rows, there, wanted, wanted > *limits.max_unconsumed_rows};
    }
  }
  if (limits.max_version_lag && demand.newest_after && demand.oldest_after) {
    const auto lag_from = [&](std::int64_t oldest) {
      return *demand.newest_after > oldest ? static_cast<std::uint64_t>(*demand.newest_after - oldest) : 0;
    };
    if (lag_from(*demand.oldest_after) > *limits.max_version_lag) {
      return Excess{"max_version_lag", *limits.max_version_lag, static_cast<std::uint64_t>(*demand.oldest_after),
                    static_cast<std::uint64_t>(*demand.newest_after),
                    demand.own_oldest && lag_from(*demand.own_oldest) > *limits.max_version_lag};
    }
  }
  return std::nullopt;
}

Error limit_error(const std::string& partition, const PartitionLimits& limits, const Excess& excess) {
  const std::string limit = excess.limit;
  std::string what = "partition '" + partition + "' has the limit " + limit + " = " + text(excess.cap) + ", and ";
  if (limit == "max_bytes") {
    what += "holds " + text(excess.there) + " bytes; the put would add " + text(excess.wanted);
    what += excess.never ? ", which never fit: put fewer rows at a time, or raise the limit"
                         : ". Clear rows that are no longer needed, wait (timeout=), or raise the limit";
  } else if (limit == "max_unconsumed_rows") {
    what += "holds " + text(excess.there) + " rows (a row counts until " + until(limits) + " it); the put would add " +
            text(excess.wanted);
    what += excess.never ? ", which never fit: put fewer rows at a time, or raise the limit"
                         : ". Wait until they are consumed or cleared (timeout=), or raise the limit";
  } else if (excess.never) {
    what += "the put brings rows that are too old for it: the newest weight_version is " + text(excess.wanted) +
            " and theirs is lower by more than that; make them with newer weights, or raise the limit";
  } else {
    what += "with the put the newest weight_version would be " + text(excess.wanted) + " while rows of version " +
            text(excess.there) + " are not consumed. Wait until they are consumed or cleared (timeout=), or raise the limit";
  }
  Error error(ErrorCode::limit_exceeded, what);
  constexpr const char* names[] = {"wait", "shed", "raise"};
  error.names = {partition, limit, names[static_cast<std::size_t>(limits.when_exceeded)]};
  error.figures = {{"cap", excess.cap}, {"there", excess.there}, {"wanted", excess.wanted}, {"never", excess.never ? 1 : 0}};
  return error;
}

}  // namespace tq::index
