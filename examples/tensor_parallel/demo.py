"""Scores texts on four ranks, shows which rank got what and which wrote, and compares with one process."""

from __future__ import annotations

import io
import itertools

import torch
from rich.console import Console
from rich.table import Table
from tensordict import TensorDict

import transferqueue as tq
from examples.common.batching import jagged, pad_left
from examples.common.model import ModelConfig
from examples.common.policy import ShardedPolicy
from examples.common.tensor_parallel import TensorParallel
from examples.common.tokenizer import CharTokenizer
from examples.common.weights import initial_state
from examples.tensor_parallel.worker import ModelRank, Seen, log_probs_of
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

DP_SIZE, TP_SIZE, ROWS, SEED = 2, 2, 10, 1
MODEL = ModelConfig(CharTokenizer.vocab_size, max_position=16, hidden_size=64, num_layers=2, num_heads=4)


def texts(rows: int) -> TensorDict:
    """Sums with an answer: `prompts` int64 (padded on the left), jagged `responses`, and `row` to know them again."""
    tokenizer = CharTokenizer()
    terms = list(itertools.islice(itertools.product(range(1, 10), repeat=2), rows))
    prompts, _ = pad_left([tokenizer.encode_prompt(f"{a}+{b}=") for a, b in terms], 6)
    responses = jagged([torch.tensor(tokenizer.encode_response(str(a + b))) for a, b in terms])
    return TensorDict({"row": torch.arange(rows), "prompts": prompts, "responses": responses}, batch_size=[rows])


def run() -> bool:
    """Whether the ranks together computed what one process does, and the rows were stored by half of them."""
    console = Console(width=120)
    batch = texts(ROWS)
    with tq.init({"storage.size": "64MiB"}):
        client = tq.get_client()
        pool = RayResourcePool([DP_SIZE * TP_SIZE], use_gpu=False, max_colocate_count=1)
        model = RayClassWithInitArgs(ModelRank, MODEL, DP_SIZE, TP_SIZE, SEED)
        with RayWorkerGroup(pool, model) as group:
            rows = client.put(batch, partition_id="texts")
            puts_before = client.stats().puts
            scored = group.score(rows)
            puts = client.stats().puts - puts_before
            seen = group.seen()
            console.print(f"{group.describe(file=io.StringIO()).meshes[0]}", highlight=False)
        found = client.get_data(scored.select_fields(["log_probs"]))["log_probs"]
    alone = ShardedPolicy(MODEL, initial_state(MODEL, SEED, 0.2), TensorParallel(), None)
    expected = log_probs_of(alone, batch)["log_probs"]
    difference = float((found.values() - expected.values()).abs().max())
    console.print(table_of(seen))
    console.print(f"{scored.size} rows came back, stored by {puts} puts: one for each replica, none by the other ranks")
    console.print(f"largest difference from one process: {difference:.1e}")
    return puts == DP_SIZE and scored.size == ROWS and difference < 1e-4


def table_of(seen: list[Seen]) -> Table:
    """A line for each rank."""
    table = Table(title=f"{ROWS} rows on {DP_SIZE} replicas x {TP_SIZE} tensor parallel ranks", title_justify="left")
    for heading in ("rank", "DP rank", "TP rank", "parameters held", "rows computed", "collect mask", "rows stored"):
        table.add_column(heading, justify="right")
    for rank in seen:
        rows = ", ".join(map(str, rank.row_ids))
        table.add_row(
            str(rank.rank),
            str(rank.dp_rank),
            str(rank.tp_rank),
            f"{rank.parameters:,}",
            rows,
            str(rank.collects),
            rows if rank.collects else "none",
        )
    return table
