"""See `transferqueue.workers`."""

from transferqueue.workers import DistGlobalInfo, DistRankInfo, Worker, WorkerHelper
from transferqueue.workers.dispatch_modes import Dispatch
from transferqueue.workers.execute import Execute
from transferqueue.workers.register import register

__all__ = ["Dispatch", "DistGlobalInfo", "DistRankInfo", "Execute", "Worker", "WorkerHelper", "register"]
