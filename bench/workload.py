"""The batches that every system is measured with, as the package has them."""

from __future__ import annotations

from transferqueue.microbench.workload import assert_equal_batches as assert_equal_batches
from transferqueue.microbench.workload import payload_nbytes as payload_nbytes
from transferqueue.microbench.workload import read_all as read_all
from transferqueue.microbench.workload import small_batch as small_batch
from transferqueue.microbench.workload import touch_pages as touch_pages
from transferqueue.microbench.workload import workload_w as workload_w
