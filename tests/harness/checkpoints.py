"""Checkpoints that the tests share: one that holds everything, and a strategy for any of them."""

import dataclasses

from hypothesis import strategies as st

from core.evolution.types import CaseSample, Edit, RejectedEdit, SystemCasePack, ToolCasePack
from harness.checkpoint import PHASES, Best, Checkpoint, Fingerprints, Spent, TrainState
from harness.validate import Probation, SnapshotRow
from harness.workspace import VersionPair

FINGERPRINTS = Fingerprints({"seed": 0, "temperature": None}, {"gate_alpha": 0.05})
BEGUN = TrainState(
    current_skills_version="v1",
    current_prompts_version="v1",
    baseline_skills_version="v1",
    baseline_prompts_version="v1",
)
FIRST = Checkpoint("pilot", FINGERPRINTS, BEGUN)

CASE = CaseSample(
    question_id="q1",
    video_id="film",
    task_type="order",
    question="Was folgt auf den Walzer? 华尔兹",
    options=("A. ein Streit", "B. Regen"),
    answer="A",
    prediction=None,
    correct=False,
    error_type="search_failure",
    metrics={"tool_usage": {"view_node": 2}, "budget_usage": 0.5},
    trace=({"step": 1, "tool": "view_node", "args": {"node_id": "e1"}, "node_ids": ["e1"]},),
)
REJECTED = RejectedEdit(
    target_file="order.md",
    edit=Edit("replace", target="old", content="new", related_cases=("q1", "q2")),
    reason="futile",
    epoch=1,
    step=2,
    improved=1,
    regressed=3,
    evidence_ids=("q1", "q2"),
)
PROBATION = Probation(
    target_file="order.md",
    task_types=("order",),
    base_version="v1",
    accepted_versions=("v2", "v3"),
    epoch=1,
    step=0,
    validation={"q8": SnapshotRow(True, "pilot_baseline", "s", "p", "a")},
    diagnosis={"q1": False, "q2": None},
    pending_edits=(REJECTED,),
)
FULL_STATE = TrainState(
    current_skills_version="v3",
    current_prompts_version="v2",
    baseline_skills_version="v1",
    baseline_prompts_version="v1",
    epoch=2,
    step=1,
    global_step=5,
    phase="R2",
    batches=(("q1", "q2"), ("q3",)),
    best=Best("v2", "v1", "pilot_e1_R", 0.625),
    correctness={"q1": True, "q2": False},
    eval_prev_acc=0.0,
    eval_prev_run_id="pilot_e1_R2",
    steps_since_best_improved=4,
    spent=Spent(120, 45_000, 0.75),
    rejected_buffer=(REJECTED,),
    probations={"order.md": PROBATION},
    gate_cooldown={"order.md": 0, "content.md": 2},
    epoch_start_skills="v2",
    changed_task_types_this_epoch=frozenset({"order", "content", "frame"}),
    system_packs=(SystemCasePack({"right": 3, "patterns": {"early_submit": 3}}, (CASE,), ()),),
    tool_packs=(
        ToolCasePack("view_node", ("view_node_extract.md",), {"calls": 2}, ({"question_id": "q1"},), ()),
    ),
    r_versions=VersionPair("v3", "v1"),
    r2_versions=VersionPair("v3", "v2"),
    gate_epoch_observed={"q1": True},
)
FULL = Checkpoint("pilot", FINGERPRINTS, FULL_STATE)

# Any checkpoint

_texts = st.text(max_size=6)
_numbers = st.integers(-(2**53), 2**53)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_plain = st.recursive(
    st.none() | st.booleans() | _numbers | _finite | _texts,
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(_texts, parts, max_size=2),
    max_leaves=4,
)
_mappings = st.dictionaries(_texts, _plain, max_size=2)


def _few(values):
    return st.lists(values, max_size=2).map(tuple)


def _built(kind, **given):
    """Any value of a class, its fields as its type hints say unless given."""
    named = {
        "stats": _mappings,
        "metrics": _mappings,
        "trace": _few(_mappings),
        "failure_spans": _few(_mappings),
        "success_spans": _few(_mappings),
        **given,
    }
    names = {field.name for field in dataclasses.fields(kind)}
    return st.builds(kind, **{name: values for name, values in named.items() if name in names})


_cases = _few(_built(CaseSample, options=_few(_texts)))
_rejected = _few(
    _built(RejectedEdit, edit=_built(Edit, related_cases=_few(_texts)), evidence_ids=_few(_texts))
)
_probation = _built(
    Probation,
    validation=st.dictionaries(_texts, _built(SnapshotRow), max_size=2),
    diagnosis=st.dictionaries(_texts, st.none() | st.booleans(), max_size=2),
    pending_edits=_rejected,
)
_flags = st.dictionaries(_texts, st.booleans(), max_size=3)
_states = _built(
    TrainState,
    epoch=_numbers,
    step=_numbers,
    global_step=_numbers,
    phase=st.sampled_from(PHASES),
    batches=_few(_few(_texts)),
    best=st.none() | _built(Best, acc=_finite),
    correctness=_flags,
    eval_prev_acc=st.none() | _finite,
    eval_prev_run_id=st.none() | _texts,
    steps_since_best_improved=_numbers,
    spent=_built(Spent, rollouts=_numbers, tokens=_numbers, cost=_finite),
    rejected_buffer=_rejected,
    probations=st.dictionaries(_texts, _probation, max_size=2),
    gate_cooldown=st.dictionaries(_texts, _numbers, max_size=2),
    epoch_start_skills=st.none() | _texts,
    changed_task_types_this_epoch=st.frozensets(_texts, max_size=3),
    system_packs=_few(_built(SystemCasePack, failure_cases=_cases, success_cases=_cases)),
    tool_packs=_few(_built(ToolCasePack, target_files=_few(_texts))),
    r_versions=st.none() | _built(VersionPair),
    r2_versions=st.none() | _built(VersionPair),
    gate_epoch_observed=_flags,
)
checkpoints = st.builds(Checkpoint, _texts, st.builds(Fingerprints, _mappings, _mappings), _states)
