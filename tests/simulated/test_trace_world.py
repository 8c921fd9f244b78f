"""A recorded table is replayed as it was, by the fast path and by the agent, and gaps are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_worlds import TEXT, answers, is_right, make_world

from core.adapters.simulated_texts import skill_part
from core.adapters.trace_world import TraceWorld, read_trace_table, write_trace_table
from core.agent.prompts import PromptDirectory, system_prompt
from core.agent.skills import read_skills
from core.protocols import Agent
from core.text_hash import skill_hash
from harness.baseline_cache import skill_hash as skill_hash_of_rows

WORLD = make_world(churn=0.0)
ROWS = WORLD.responses.rows
TEXTS = ("", TEXT, "# Skill: order\n\nLook twice.")
RECORDED = {
    (question.question_id, skill_hash(text)): bool(right)
    for text in TEXTS
    for question, right in zip(WORLD.questions, WORLD.correct(ROWS, text, 0), strict=True)
}
REPLAY = TraceWorld(WORLD.questions, RECORDED, name="simulated-recording")

tables = st.dictionaries(
    st.tuples(st.text(min_size=1), st.text("0123456789abcdef", min_size=1)), st.booleans()
)


@given(recorded=tables)
def test_a_table_reads_back_as_it_was_written(recorded, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    written = {key: right for key, right in recorded.items() if _plain(key[0])}
    write_trace_table(path, written)
    assert read_trace_table(path) == written


def _plain(text):
    return text.isprintable()


def test_equal_tables_are_equal_files(tmp_path):
    write_trace_table(tmp_path / "one.csv", RECORDED)
    write_trace_table(tmp_path / "two.csv", dict(reversed(RECORDED.items())))
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


async def test_the_replay_answers_as_was_recorded():
    for text in TEXTS:
        expected = WORLD.correct(ROWS, text, 0)
        assert np.array_equal(REPLAY.correct(ROWS, text, "any draw"), expected)
        results = await answers(lambda _: REPLAY.agent(), WORLD.questions, text, tools_for=WORLD.tools_for)
        assert [*map(is_right, WORLD.questions, results)] == expected.tolist()
        assert REPLAY.true_accuracy(lambda _, text=text: text) == expected.mean()


def test_it_is_a_deterministic_agent_that_says_what_it_is():
    agent = REPLAY.agent()
    assert isinstance(agent, Agent)
    assert agent.deterministic
    assert "replayed-simulated-recording" in agent.fingerprint


def test_what_was_never_recorded_is_named_with_its_hash():
    with pytest.raises(LookupError, match=f"sim-0000.*{skill_hash('other')}"):
        REPLAY.correct(ROWS, "other", 0)
    partial = TraceWorld(WORLD.questions, {("sim-0001", skill_hash("")): True}, name="part")
    assert partial.correct(np.array([1]), "", 0).tolist() == [True]
    with pytest.raises(LookupError, match="sim-0002"):
        partial.correct(np.array([1, 2]), "", 0)


def test_texts_are_told_apart_as_in_the_rows_of_predictions():
    for text in (*TEXTS, "blanks  \r\nat the end \n\n", "é 漢字"):
        assert skill_hash(text) == skill_hash_of_rows(text)


def test_the_skill_is_found_in_a_system_prompt_of_a_real_run():
    line = "- The question asks what comes after. -> search_next\n"
    bodies = {"plain": "Look twice.\n", "with lines": f"Advice.\n\n## Where to look\n\n{line}"}
    tools = WORLD.tools_for(WORLD.questions[0])
    for body in bodies.values():
        front = "---\nname: order\ndescription: d\ntask_type: order\n---\n"
        skills = read_skills({"order.md": front + body})
        prompt = system_prompt(PromptDirectory(), tools, skills, "order")
        assert prompt != skills.text_for("order")
        assert skill_hash(skill_part(prompt)) == skill_hash(skills.text_for("order"))
        assert skill_part(skill_part(prompt)) == skill_part(prompt)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("question_id,correct\nq1,1\n", "first line"),
        ("question_id,skill_hash,correct\nq1,ab,yes\n", "line 2"),
        ("question_id,skill_hash,correct\nq1,ab,1\n,ab,1\n", "line 3"),
        ("question_id,skill_hash,correct\nq1,ab,1\nq1,ab,0\n", "line 3.*q1"),
        ("question_id,skill_hash,correct\nq1,ab\n", "line 2"),
        ("", "first line"),
    ],
)
def test_a_table_that_cannot_be_used_names_file_and_line(content, named, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"table.csv.*{named}"):
        read_trace_table(path)
