"""3 epochs of 4 steps through the real client: killed anywhere and resumed, nothing is lost, hardly a call is
repeated; and the texts that training leaves were written by the model."""

import asyncio
import json
from collections import Counter

import pytest
from served_runs import CONCURRENCY, KILLED, make_world, prepare, serving, train
from training_runs import canonical_hash, canonical_state, differences, query

pytestmark = pytest.mark.slow


def calls_of(servers):
    """How often each request was made, by role and content, as the servers saw it."""
    return Counter(
        (name, json.dumps(call.body, sort_keys=True))
        for name, server in servers.items()
        for call in server.calls
    )


def end_of(folder):
    """What a run has left, without the journal, whose rows a kill may put in another order."""
    for path in folder.rglob("journal.db*"):
        path.unlink()
    return canonical_state(folder)


async def trained(folder, *, kill=""):
    """The calls of a run, killed and resumed if told to, and what they were."""
    prepare(folder)
    async with serving(make_world()) as servers:
        if kill:
            for server in servers.values():
                server.delay_s = 0.02  # so that other calls are in flight when the process dies
            assert await train(folder, servers, kill=kill) == -9
            for server in servers.values():
                server.delay_s = 0
        assert await train(folder, servers, resume=bool(kill)) == 0
        assert {call.answered for server in servers.values() for call in server.calls} == {"ok"}
        return calls_of(servers), servers


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("never") / "run"
    calls, servers = asyncio.run(trained(folder))
    return folder, calls, servers, end_of(folder)


def test_the_run_is_3_epochs_of_4_steps_and_has_something_to_lose(never_killed):
    folder, calls, _, _ = never_killed
    sql = "SELECT DISTINCT run_id FROM predictions WHERE run_id GLOB 'sim_e[0-9]_s[0-9]'"
    assert sorted(Counter(row["run_id"][:6] for row in query(folder, sql)).values()) == [4, 4, 4]
    events = query(folder, "SELECT event_type, payload FROM _events")
    seen = {(row["event_type"], json.loads(row["payload"]).get("decision")) for row in events}
    decided = {"probation_settled": ("kept", "rolled_back"), "prompts_decided": ("kept", "reverted")}
    assert {(event, decision) for event, both in decided.items() for decision in both} <= seen
    assert {name for name, _ in calls} == {"AGENT", "JUDGE", "EVOLVE"}


def test_accepted_edits_are_lines_that_the_evolver_wrote(never_killed):
    folder, _, servers, _ = never_killed
    server = servers["EVOLVE"]
    written = {
        edit["content"] for call in server.calls for edit in json.loads(server.reply(call.body))["edits"]
    }
    rows = query(folder, "SELECT payload FROM _events WHERE event_type = 'accepted'")
    accepted = [edit["content"] for row in rows for edit in json.loads(row["payload"])["applied"]]
    assert accepted
    assert set(accepted) <= written


@pytest.mark.parametrize("kill", KILLED)
async def test_a_killed_run_ends_as_the_other_and_repeats_only_calls_in_flight(never_killed, tmp_path, kill):
    _, needed, _, whole = never_killed
    made, _ = await trained(tmp_path / "run", kill=kill)
    found = end_of(tmp_path / "run")
    assert differences(whole, found) == []
    assert canonical_hash(whole) == canonical_hash(found)
    repeated = made - needed
    print(f"{kill}: {sum(needed.values())} calls, {sum(repeated.values())} repeated")
    assert needed - made == Counter()
    assert sum(repeated.values()) <= CONCURRENCY
