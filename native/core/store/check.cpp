// The session against itself.
#include <algorithm>
#include <string>
#include <vector>

#include "core/store/store.hpp"

namespace tq {

void Store::check() {
  const Call call(*attachment_);
  Index& index = call.index();
  std::vector<BlockRef> published = index.check();
  const auto unreadable = [&](BlockRef block) { return !attachment_->table.is_live(block); };
  // Retired since the look: asked again, on a later snapshot, which does not list it any more.
  for (int look = 0; look < 3 && std::any_of(published.begin(), published.end(), unreadable); ++look) published = index.check();
  const auto found = std::find_if(published.begin(), published.end(), unreadable);
  if (found == published.end()) return;
  throw Error(ErrorCode::corrupt, "rows name block " + std::to_string(found->slot()) + " (generation " +
                                      std::to_string(found->generation()) +
                                      "), which the block table does not hold as readable; end this session and start a new one");
}

}  // namespace tq
