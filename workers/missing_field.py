"""The hint for the most usual mistake with metadata: passing on the object from before a field was added."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from transferqueue.errors import FieldNotReadyError, TransferQueueError, name_some
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import session_client

_QUOTED = re.compile(r"""["']([^"']+)["']""")


def explain_missing_field(error: KeyError, method: str, arguments: Iterable[Any]) -> None:
    """Raises a `FieldNotReadyError` from `error` when the method that raised it asked its batch for a field that the
    rows have and the metadata does not name. Looks at one row; only on the way out of a failed call.

    Args:
        error: what the method raised.
        method: its name, for the message.
        arguments: those of the call, metadata among them.
    """
    if isinstance(error, TransferQueueError) or not error.args:
        return  # says what it has to say
    text = str(error.args[0])
    wanted = {text, *_QUOTED.findall(text)[:1]}
    for meta in arguments:
        if isinstance(meta, (BatchMeta, KVBatchMeta)) and meta.size:
            named = list(meta.field_names if isinstance(meta, BatchMeta) else meta.fields or ())
            for name in sorted(wanted.difference(named)):
                if _row_has(meta, name):
                    raise FieldNotReadyError(
                        f"{method}: {text}. The rows have the field {name!r}, but the metadata passed names only "
                        f"{name_some(named) or 'none'}: pass the metadata returned by the call that added the field",
                        fields=(name,),
                    ) from error


def _row_has(meta: BatchMeta | KVBatchMeta, field: str) -> bool:
    try:
        client = session_client.client_for(meta)
        if isinstance(meta, BatchMeta):
            client.get_data(meta[:1], fields=[field])
        else:
            client.kv_batch_get(meta.keys[:1], meta.partition_id or "", select_fields=[field])
    except (TransferQueueError, ValueError):
        return False
    return True
