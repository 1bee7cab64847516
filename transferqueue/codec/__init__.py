"""TensorDicts into blocks and back: `plan_put` and `decode`; `plan_alloc` for fields that are computed in place."""

from transferqueue.codec.alloc_plan import AllocPlan, plan_alloc
from transferqueue.codec.decode import Part, decode, decode_empty, decode_parts
from transferqueue.codec.encode import plan_put
from transferqueue.codec.field_tree import new_batch
from transferqueue.codec.jagged import Jagged
from transferqueue.codec.jagged_layout import JAGGED, LAYOUTS, STORED
from transferqueue.codec.put_plan import PutPlan
from transferqueue.codec.schema import check_name, schema_dict

__all__ = [
    "JAGGED",
    "LAYOUTS",
    "STORED",
    "AllocPlan",
    "Jagged",
    "Part",
    "PutPlan",
    "check_name",
    "decode",
    "decode_empty",
    "decode_parts",
    "new_batch",
    "plan_alloc",
    "plan_put",
    "schema_dict",
]
