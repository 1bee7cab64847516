"""Modules and names that programs import."""

from __future__ import annotations

import importlib
import inspect
import logging
from importlib import resources

import pytest
from omegaconf import OmegaConf

import transferqueue as native
from tests.support.sessions import run_python
from transferqueue.compat import transfer_queue as tq
from transferqueue.compat.session_options import default_size_bytes, merged_config, native_options

PACKAGE = "transferqueue.compat.transfer_queue"
TOP = """
    init close get_metrics_endpoint kv_put kv_batch_put kv_batch_get kv_batch_get_by_meta kv_list kv_clear async_kv_put
    async_kv_batch_put async_kv_batch_get async_kv_batch_get_by_meta async_kv_list async_kv_clear KVBatchMeta BatchMeta
    TransferQueueClient StorageKeyNotFoundError save_checkpoint load_checkpoint get_client StreamingDataset
    StreamingDataLoader BaseSampler SequentialSampler GRPOGroupNSampler RankAwareSampler SeqlenBalancedSampler
    __version__
"""
MODULES = {
    "metadata": "BatchMeta KVBatchMeta",
    "client": "TransferQueueClient",
    "interface": "_TQ_CONTROLLER init",
    "sampler": "BaseSampler SequentialSampler GRPOGroupNSampler RankAwareSampler SeqlenBalancedSampler",
    "sampler.base": "BaseSampler",
    "sampler.sequential_sampler": "SequentialSampler",
    "sampler.grpo_group_n_sampler": "GRPOGroupNSampler",
    "sampler.rank_aware_sampler": "RankAwareSampler",
    "sampler.seqlen_balanced_sampler": "SeqlenBalancedSampler get_seqlen_balanced_partitions",
    "dataloader": "StreamingDataset StreamingDataLoader",
    "dataloader.streaming_dataset": "StreamingDataset chunk_batch_fn default_fetch_batch_fn",
    "dataloader.streaming_dataloader": "StreamingDataLoader",
    "utils.logging_utils": "get_logger",
}


def test_every_name_is_there_and_one_object_in_every_module() -> None:
    names = TOP.split()
    assert set(names) <= set(dir(tq))
    assert {name for name in names if getattr(tq, name, self_is_missing := object()) is self_is_missing} == set()
    for module, listed in MODULES.items():
        loaded = importlib.import_module(f"{PACKAGE}.{module}")
        for name in listed.split():
            value = getattr(loaded, name)
            assert not hasattr(tq, name) or getattr(tq, name) is value or not inspect.isclass(value)
    with pytest.raises(AttributeError, match="kv_putt"):
        _ = tq.kv_putt  # type: ignore[attr-defined]
    # Programs that find these patch a requirement on the other package into their actors.
    for name in ("storage.simple_storage", "controller"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"{PACKAGE}.{name}")


def test_importing_is_light() -> None:
    code = f"import sys, {PACKAGE}\nprint(sorted({{'torch', 'ray', 'tensordict', 'omegaconf'}} & set(sys.modules)))"
    assert run_python(code) == "[]\n"


def test_keyword_names() -> None:
    expected = {
        tq.kv_put: "key partition_id fields tag data_parser",
        tq.kv_batch_put: "keys partition_id fields tags data_parser",
        tq.kv_batch_get: "keys partition_id select_fields",
        tq.kv_batch_get_by_meta: "meta select_fields",
        tq.kv_list: "partition_id",
        tq.kv_clear: "keys partition_id",
        tq.save_checkpoint: "checkpoint_dir include_storage metadata",
        tq.TransferQueueClient.put: "self data metadata partition_id data_parser",
        tq.TransferQueueClient.get_meta: "self data_fields batch_size partition_id mode task_name sampling_config",
        tq.TransferQueueClient.get_data: "self metadata",
        tq.TransferQueueClient.kv_retrieve_meta: "self keys partition_id create",
        tq.TransferQueueClient.kv_retrieve_keys: "self global_indexes partition_id",
        tq.TransferQueueClient.check_consumption_status: "self task_name partition_id",
        tq.TransferQueueClient.check_production_status: "self data_fields partition_id",
        tq.TransferQueueClient.reset_consumption: "self partition_id task_name",
    }
    for function, names in expected.items():
        assert " ".join(inspect.signature(function).parameters) == names
    for name in ("kv_put", "kv_batch_put", "kv_batch_get", "kv_batch_get_by_meta", "kv_list", "kv_clear"):
        asynchronous = getattr(tq, f"async_{name}")
        assert inspect.iscoroutinefunction(asynchronous)
        assert (
            inspect.signature(asynchronous).parameters.keys() == inspect.signature(getattr(tq, name)).parameters.keys()
        )


def test_the_default_configuration_is_a_file_that_programs_change_and_pass() -> None:
    config = OmegaConf.load(str(resources.files(PACKAGE) / "config.yaml"))
    assert config.controller.sampler == "SequentialSampler"
    assert config.controller.polling_mode is False
    assert OmegaConf.to_container(config.metrics) == {"enabled": False, "port": 0}
    simple = config.backend[config.backend.storage_backend]
    for key in ("total_storage_size", "num_data_storage_units", "required_node_resource", "zmq_info", "ssd_offload"):
        assert key in simple
    changed = OmegaConf.merge(
        config,
        {"controller": {"polling_mode": True}, "backend": {"SimpleStorage": {"total_storage_size": 100}}},
    )
    options = native_options(merged_config(changed))
    assert options["controller.polling_mode"] is True
    assert options["storage.size"] == default_size_bytes()


def test_what_of_a_configuration_reaches_the_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = tq.GRPOGroupNSampler(n_samples_per_prompt=4)
    options = native_options(
        merged_config(
            {
                "controller": {"sampler": sampler},
                "backend": {"storage_backend": "Other", "SimpleStorage": {"ssd_offload": {"enabled": True}}},
                "transferqueue": {"storage": {"size": "4GiB"}, "read.copy_below": 1},
            }
        )
    )
    assert options["controller.sampler"] is sampler
    assert options["storage.size"] == "4GiB"
    assert options["read.copy_below"] == 1
    assert "storage_backend=Other" in caplog.text
    assert "ssd_offload has no effect" in caplog.text
    monkeypatch.setenv("TRANSFERQUEUE_STORAGE__SIZE", "8GiB")
    assert "storage.size" not in native_options(merged_config(None))
    with pytest.raises(ValueError, match="Could not find sampler NoSuch"):
        native_options(merged_config({"controller": {"sampler": "NoSuch"}}))
    with pytest.raises(TypeError, match="sampler"):
        native_options(merged_config({"controller": {"sampler": 5}}))


def test_loggers_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from transferqueue.compat.transfer_queue.utils.logging_utils import get_logger

    assert get_logger("some.program").level == logging.WARNING
    monkeypatch.setenv("TQ_LOGGING_LEVEL", "DEBUG")
    assert get_logger("some.program").level == logging.DEBUG


def test_samplers_are_the_native_ones() -> None:
    for name in ("BaseSampler", "SequentialSampler", "GRPOGroupNSampler", "RankAwareSampler", "SeqlenBalancedSampler"):
        assert getattr(tq, name) is getattr(native, name)
    assert issubclass(tq.BatchMeta, native.BatchMeta)
