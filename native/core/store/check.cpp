// The session against itself.
#include <algorithm>
#include <string>
#include <vector>

#include "core/pause.hpp"
#include "core/store/store.hpp"

namespace tq {

// Others go on meanwhile: a block that the snapshot lists may be retired before its word is looked at. But words change at the
// ends of a block's life only outside its listing: to live before the commit that lists it, away from live after the commit that
// unlists it (give_back.hpp). So a word that was not live and belongs to a block that a *later* snapshot lists as well was never
// rightly so, however often this thread is held up in between; asking a number of times instead would be a matter of luck.
void Store::check() {
  const Call call(*attachment_);
  Index& index = call.index();
  std::vector<BlockRef> suspects = index.check();
  TQ_PAUSE("check.listed");
  std::erase_if(suspects, [&](BlockRef block) { return attachment_->table.is_live(block); });
  if (suspects.empty()) return;
  const std::vector<BlockRef> listed = index.check();
  const auto found = std::find_if(suspects.begin(), suspects.end(), [&](BlockRef block) {
    return std::find(listed.begin(), listed.end(), block) != listed.end();
  });
  if (found == suspects.end()) return;
  throw Error(ErrorCode::corrupt, "rows name block " + std::to_string(found->slot()) + " (generation " +
                                      std::to_string(found->generation()) +
                                      "), which the block table does not hold as readable; end this session and start a new one");
}

}  // namespace tq
