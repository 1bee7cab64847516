"""The unit and the record of every measurement, as the package has them."""

from __future__ import annotations

from transferqueue.microbench.timing import Measured as Measured
from transferqueue.microbench.timing import MemcpyUnit as MemcpyUnit
from transferqueue.microbench.timing import page_faults as page_faults
