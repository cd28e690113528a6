"""Users who leave before the answer is over, against the simulated engine's own log: it must see each of them go."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_load_against_truth import run_folder
from tests.integration.test_load_kinds import run
from tests.servers.simulator import StartSim, sim_starter

from servebench.workload.seeds import LEAVING, chosen

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WORKLOAD = """
name: leaving
seed: 3
target: {{endpoint: openai-chat, model: sim-1}}
prompts: {{source: {{kind: mt-bench}}, output_tokens: {{from: fixed, tokens: 60}}}}
load: {{kind: closed, users: 4, requests: 40}}
requests: {{abandon: {abandon}}}
"""


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.mark.parametrize("abandon", ["{tokens: 5, share: 50%}", "{after: 300ms, share: 50%}"])
def test_the_chosen_share_leaves_and_the_server_stops_their_answers(
    tmp_path: Path, start_sim: StartSim, abandon: str
) -> None:
    sim = start_sim(preset="demo")
    code, rows, manifest = run(tmp_path, WORKLOAD.format(abandon=abandon), f"http://127.0.0.1:{sim.port}", 1)
    truth = {record.request_id: record for record in sim.stop()}
    assert code == (0 if manifest["verdict"]["valid"] else 3), "a crowded client may spoil its seconds"
    leaving = {row["request_id"] for row in rows if chosen(3, LEAVING, row["seq"], 0.5)}
    assert 10 <= len(leaving) <= 30
    ended = {row["request_id"]: (row["outcome"], row["error_class"]) for row in rows}
    assert ended == {name: ("cancelled", "abandoned") if name in leaving else ("ok", None) for name in ended}
    assert {name for name, record in truth.items() if record.aborted} == leaving
    assert all(len(truth[name].t_send_ns) < 60 for name in leaving)
    told = json.loads((run_folder(tmp_path) / "summary.json").read_text())["leaving"]
    assert told["abandoned"] == len(leaving)
    assert told["engine_gave_up"] is None or told["engine_gave_up"] <= len(leaving), "the page is read once a second"
    for row in rows:
        if row["request_id"] in leaving and "tokens" in abandon:
            assert sum(kind == "content" for kind in row["chunk_kind"]) >= 5
        elif row["request_id"] in leaving:
            assert row["end_ns"] - row["sent_ns"] >= 300_000_000
