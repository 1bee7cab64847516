"""The model of scale: what must hold whatever the constants are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.scale_model import Constants, Setup, fit, loads, queue_waits, simulate_lock, table

CONSTANTS = Constants(
    put_us=30.0,
    put_row_us=0.01,
    put_field_us=6.0,
    get_us=20.0,
    get_row_us=0.03,
    get_field_us=7.0,
    lock_us=10.0,
    lock_row_us=0.002,
    lock_field_us=0.15,
    index_bytes_per_row=500.0,
    fetch_us=80.0,
    fetch_row_us=0.03,
    metadata_bytes=200.0,
    metadata_bytes_row=2.0,
    split_join_row_us=0.002,
    split_join_part_us=2.0,
)


def used(setup: Setup, constants: Constants = CONSTANTS) -> dict[str, float]:
    return {load.resource: load.used for load in loads(constants, setup)}


def step_costs(constants: Constants) -> list[dict[str, object]]:
    """The measurement that a machine with exactly these constants would give."""
    c = constants
    facts: dict[str, float] = {}
    for rows in (1, 8, 64, 512):
        for fields in (1, 4, 20):
            for verb in ("put", "get", "lock"):
                base, row, field = (getattr(c, f"{verb}_{part}") for part in ("us", "row_us", "field_us"))
                facts[f"step_{verb}_us_r{rows}_f{fields}"] = base + row * rows + field * fields
    for rows in (10_000, 100_000):
        facts[f"step_fetch_us_{rows}"] = c.fetch_us + c.fetch_row_us * rows
    for rows in (128, 8192):
        facts[f"step_metadata_bytes_scattered_{rows}"] = c.metadata_bytes + c.metadata_bytes_row * rows
    for rows, parts in ((8192, 64), (32768, 1024)):
        facts[f"step_split_join_us_r{rows}_p{parts}"] = c.split_join_row_us * rows + c.split_join_part_us * parts
    facts["step_index_bytes_per_row_single_f20"] = c.index_bytes_per_row
    return [{"claim": "another", "facts": {}}, {"claim": "step_costs", "facts": facts}]


def test_the_fit_finds_the_constants_behind_exact_measurements() -> None:
    found = fit(step_costs(CONSTANTS))
    for name, expected in vars(CONSTANTS).items():
        assert getattr(found, name) == pytest.approx(expected, rel=1e-6), name


def test_a_fit_never_gives_a_negative_cost() -> None:
    results = step_costs(CONSTANTS)
    facts = results[1]["facts"]
    assert isinstance(facts, dict)
    for name in facts:
        if name.startswith("step_put") and "_r512_" in name:
            facts[name] *= 0.5  # more rows, less time: noise
    assert all(value >= 0 for value in vars(fit(results)).values())


def test_results_without_the_measurement_are_refused() -> None:
    with pytest.raises(ValueError, match="step_costs"):
        fit([{"claim": "put_get_w", "facts": {}}])


@pytest.mark.parametrize("name", ["rows_in_flight", "stages", "rollout_fields", "row_nbytes", "ranks_per_node"])
def test_more_work_never_uses_less_of_anything(name: str) -> None:
    before = used(Setup())
    after = used(replace(Setup(), **{name: getattr(Setup(), name) * 2}))
    less = {resource for resource in before if after[resource] < before[resource] * (1 - 1e-12)}
    # More ranks on a node share the leases of the same rows.
    assert less == ({"leases of a rank"} if name == "ranks_per_node" else set())
    assert any(after[resource] > before[resource] for resource in before)


def test_rows_put_together_and_more_homes_relieve_the_home() -> None:
    one, many = used(Setup()), used(replace(Setup(), rows_per_put=16))
    spread = used(replace(Setup(), homes=16))
    for resource in ("write lock of the home index", "records in the home index", "blocks of the home node"):
        assert many[resource] < one[resource] / 8
        assert spread[resource] == pytest.approx(one[resource] / 16)
    assert many["network of a node"] == one["network of a node"]


def test_what_is_pulled_is_conserved() -> None:
    setup = Setup()
    row_nbytes = setup.row_nbytes + setup.stages * setup.stage_row_nbytes
    pulled = used(setup)["network of a node"] * setup.network_bytes_per_s * setup.nodes
    # Every row but the share that is at home already crosses the network once.
    assert pulled == pytest.approx(setup.rows_in_flight * row_nbytes * (1 - 1 / setup.nodes))
    assert used(replace(setup, nodes=1))["network of a node"] == 0


def test_the_fullest_resource_comes_first() -> None:
    shares = [load.utilisation for load in loads(CONSTANTS, Setup())]
    assert shares == sorted(shares, reverse=True)
    assert all(share >= 0 for share in shares)


def test_the_queue_is_the_recursion_of_lindley() -> None:
    arrivals = np.sort(np.random.default_rng(1).uniform(0, 1, 500))
    waited, expected = 0.0, []
    for number in range(len(arrivals)):
        if number:
            waited = max(0.0, waited + 0.003 - (arrivals[number] - arrivals[number - 1]))
        expected.append(waited)
    assert queue_waits(arrivals, 0.003) == pytest.approx(expected, abs=1e-12)


def test_nobody_waits_for_a_free_lock_and_all_are_served_one_by_one() -> None:
    assert queue_waits(np.arange(10.0), 0.5).max() == 0
    at_once = queue_waits(np.zeros(10), 0.5)
    assert at_once.tolist() == [0.5 * number for number in range(10)]


def test_the_wait_agrees_with_the_formula_for_random_arrivals() -> None:
    # Pollaczek and Khinchine for a constant service time: mean wait = S * rho / (2 * (1 - rho)).
    arrivals = np.cumsum(np.random.default_rng(2).exponential(1.0, 400_000))
    for load in (0.3, 0.7):
        assert queue_waits(arrivals, load).mean() == pytest.approx(load * load / (2 * (1 - load)), rel=0.05)


def test_a_shorter_window_never_shortens_the_wait() -> None:
    late = [simulate_lock(CONSTANTS, Setup(), window_s=window)[1] for window in (300.0, 30.0, 15.0, 5.0)]
    assert late == sorted(late)
    assert simulate_lock(CONSTANTS, replace(Setup(), rows_in_flight=0), window_s=1.0) == (0.0, 0.0)


def test_the_table_names_every_resource_once() -> None:
    text = table(CONSTANTS, Setup())
    for load in loads(CONSTANTS, Setup()):
        assert text.count(f"| {load.resource} |") == 1
