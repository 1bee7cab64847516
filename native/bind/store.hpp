// Parts of the one class Store, by what they are about.
#pragma once

#include <nanobind/nanobind.h>

#include "core/store/store.hpp"

namespace tq::bind {

void bind_store_rows(nanobind::class_<Store>& store);
void bind_store_checkpoint(nanobind::class_<Store>& store);
void bind_store_claims(nanobind::class_<Store>& store);
void bind_store_requests(nanobind::class_<Store>& store);
void bind_store_counters(nanobind::class_<Store>& store);
void bind_store_limits(nanobind::class_<Store>& store);
void bind_store_service(nanobind::class_<Store>& store);

}  // namespace tq::bind
