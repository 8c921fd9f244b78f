"""Rules of the slow update that only the whole of it, or a whole epoch, shows."""

import dataclasses

from slow_runs import begin, ignore, make_lab, system_pack

from harness.prompt_update import update_prompts
from harness.slow_update import SLOW_UPDATE, evaluate_r, slow_update_cycle


async def test_the_ten_phases_come_in_this_order(tmp_path, monkeypatch):
    came = []

    def noted(name, work):
        async def noting(parts, state):
            came.append(name)
            return await work(parts, state)

        return noting

    lab = await make_lab(tmp_path)
    with lab.log:
        for name, work in list(SLOW_UPDATE.items()):
            monkeypatch.setitem(SLOW_UPDATE, name, noted(name, work))
        await slow_update_cycle(lab.parts, await begin(lab), checkpoint=ignore)
    before = ["R", "soft_score", "dual_metric", "probations", "best"]
    assert came == [*before, "momentum", "prompts", "R2", "ladder", "observe"]


async def test_prompts_are_asked_for_with_the_cases_of_every_step_of_the_epoch(tmp_path):
    lab = (await make_lab(tmp_path)).with_evolver(edits=("Look twice.",))
    with lab.log:
        state = await evaluate_r(lab.parts, await begin(lab))
        packs = (system_pack("d-order-01"), system_pack("d-order-03"))
        await update_prompts(lab.parts, dataclasses.replace(state, system_packs=packs))
        (asked,) = [what for kind, what in lab.script.happened if kind == "call"]
        assert "Who, d-order-01?" in asked
        assert "Who, d-order-03?" in asked
