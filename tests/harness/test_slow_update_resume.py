"""A slow update that is cut short anywhere and begun again ends as if nothing had happened."""

import dataclasses

import pytest
from slow_runs import accept, begin, ignore, make_lab, system_pack

from harness import slow_update
from harness.checkpoint import PHASES, Checkpoint, Fingerprints, deserialize, serialize
from harness.parts import put_in_force, roll_out
from harness.slow_update import slow_update_cycle
from harness.store import list_versions, read_files, read_meta
from harness.workspace import load_manifest

WRONG_ORDER, RIGHT_ORDER = "v-order-01 v-order-03 v-order-05", "v-order-00 v-order-02 v-order-04"
WRONG_CONTENT = "v-content-01 v-content-03"
WITH_TIMES = ("_events", "dual_metric", "predictions", "traces", "holdout_eval")


class Killed(BaseException):
    """The process is gone."""


async def eventful(folder, edits, guidance):
    """A lab and a state with a rollback, a kept probation, guidance and an edit of the prompts ahead."""
    lab = await make_lab(folder, per_type=6, holdout_every=1, momentum_samples=4)
    lab = lab.with_evolver(edits=edits, guidance=guidance)
    state = await accept(lab, await begin(lab), "order", f"spoils {RIGHT_ORDER}")
    state = await accept(lab, state, "content", f"mends {WRONG_CONTENT}")
    await roll_out(lab.parts, "run_e1_s0", ["d-order-00", "d-content-01"], state.current)
    return lab, dataclasses.replace(state, system_packs=(system_pack("d-order-01"),))


def end_of(lab, state):
    """All that is left on the disk, moments aside, and the state."""
    parts, tables = lab.parts, {}
    for table in WITH_TIMES:
        rows = lab.log.query(f"SELECT * FROM {table}")
        for row in rows:
            for name in ("timestamp", "latency_s", "id"):
                row.pop(name, None)
        tables[table] = sorted(map(str, rows))
    store = {
        (kind, name): (
            read_files(parts.paths.store_dir / kind / name),
            read_meta(parts.paths.store_dir, kind, name).key,
        )
        for kind in ("skills", "prompts")
        for name in list_versions(parts.paths.store_dir, kind)
    }
    manifest = dataclasses.replace(load_manifest(parts.paths.workspace_dir), questions_ref="questions")
    files = {
        path.relative_to(parts.paths.workspace_dir): path.read_bytes()
        for pattern in ("gate_pools*.json", "runs/**/*.json")
        for path in parts.paths.workspace_dir.glob(pattern)
    }
    return {"state": state, "store": store, "manifest": manifest, "files": files, **tables}


def reloaded(state):
    """The state as a checkpoint gives it back."""
    return deserialize(serialize(Checkpoint("run", Fingerprints({}, {}), state))).state


class Saved:
    """A checkpoint in memory; `last_to_do` is killed before its state is saved."""

    def __init__(self, state, last_to_do):
        self.state, self.last_to_do = state, last_to_do

    def __call__(self, state):
        if state.phase == self.last_to_do:
            raise Killed
        self.state = state


KEPT = ((f"mends {WRONG_ORDER}",), "Look twice.")
REVERTED = (("spoils v-other-00 v-other-02",), "Look twice.")


@pytest.mark.parametrize("outcome", [KEPT, REVERTED], ids=["kept", "reverted"])
async def test_a_kill_before_any_checkpoint_changes_nothing_and_repeats_no_rollout(tmp_path, outcome):
    lab, state = await eventful(tmp_path / "whole", *outcome)
    with lab.log:
        wanted = end_of(lab, await slow_update_cycle(lab.parts, state, checkpoint=ignore))
        answers = sorted(lab.script.answers())
    lab, state = await eventful(tmp_path / "killed", *outcome)
    with lab.log:
        for phase in PHASES[1:-1]:
            saved = Saved(state, phase)
            with pytest.raises(Killed):
                await slow_update_cycle(lab.parts, state, checkpoint=saved)
            state = reloaded(saved.state)
            put_in_force(lab.parts, state.current)  # as a resume does
            # The phase is done, its state lost: the next loop begins it again.
        found = end_of(lab, await slow_update_cycle(lab.parts, state, checkpoint=ignore))
        assert found == wanted
        assert sorted(lab.script.answers()) == answers


@pytest.mark.parametrize("run", ["run_e1_R", "run_e1_mom_new", "run_e1_R2"])
async def test_a_kill_between_two_rollouts_repeats_only_those_in_flight(tmp_path, monkeypatch, run):
    lab, state = await eventful(tmp_path / "whole", *KEPT)
    with lab.log:
        wanted = end_of(lab, await slow_update_cycle(lab.parts, state, checkpoint=ignore))
        answers = len(lab.script.answers())
    lab, state = await eventful(tmp_path / "killed", *KEPT)
    with lab.log:
        saved = Saved(state, None)

        async def half_then_killed(parts, run_id, question_ids, pair, **options):
            ids = list(question_ids)
            await roll_out(parts, run_id, ids[: len(ids) // 2] if run_id == run else ids, pair, **options)
            if run_id == run:
                raise Killed
            return await roll_out(parts, run_id, ids, pair, **options)

        with monkeypatch.context() as patched:
            for module in (slow_update, __import__("harness.prompt_update", fromlist=["roll_out"])):
                patched.setattr(module, "roll_out", half_then_killed)
            with pytest.raises(Killed):
                await slow_update_cycle(lab.parts, state, checkpoint=saved)
        state = reloaded(saved.state)
        put_in_force(lab.parts, state.current)
        found = end_of(lab, await slow_update_cycle(lab.parts, state, checkpoint=ignore))
        assert found == wanted
        assert len(lab.script.answers()) == answers


@pytest.mark.parametrize("name", ["put_in_force", "update_best", "note"])
async def test_a_kill_right_after_a_side_effect_is_harmless(tmp_path, monkeypatch, name):
    lab, state = await eventful(tmp_path / "whole", *REVERTED)
    with lab.log:
        wanted = end_of(lab, await slow_update_cycle(lab.parts, state, checkpoint=ignore))
    lab, state = await eventful(tmp_path / "killed", *REVERTED)
    with lab.log:
        saved, real = Saved(state, None), getattr(slow_update, name)

        def done_then_killed(*arguments, **options):
            outcome = real(*arguments, **options)
            if name != "note":
                raise Killed
            return awaited_then_killed(outcome)

        async def awaited_then_killed(outcome):
            await outcome
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(slow_update, name, done_then_killed)
            with pytest.raises(Killed):
                await slow_update_cycle(lab.parts, state, checkpoint=saved)
        state = reloaded(saved.state)
        put_in_force(lab.parts, state.current)
        assert end_of(lab, await slow_update_cycle(lab.parts, state, checkpoint=ignore)) == wanted


async def test_a_finished_slow_update_has_nothing_left_to_do(tmp_path):
    lab, state = await eventful(tmp_path, *KEPT)
    with lab.log:
        state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
        happened = len(lab.script.happened)
        assert await slow_update_cycle(lab.parts, state, checkpoint=ignore) == state
        assert len(lab.script.happened) == happened


async def test_two_runs_of_the_same_slow_update_end_the_same(tmp_path):
    ends = []
    for name, concurrency in (("one", 1), ("seven", 7)):
        lab, state = await eventful(tmp_path / name, *KEPT)
        lab = lab.with_config(concurrency=concurrency)
        with lab.log:
            state = await slow_update_cycle(lab.parts, state, checkpoint=ignore)
            ends.append(end_of(lab, state))
    assert ends[0] == ends[1]
