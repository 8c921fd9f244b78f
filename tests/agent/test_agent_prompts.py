"""What an agent is told before it begins."""

import pytest

from core.agent.prompts import PromptDirectory, system_prompt, user_prompt
from core.agent.skills import parse_lines, read_skills
from core.tree.arguments import TOOLS
from core.types import GeneratedQuestion

SKILL = "---\nname: order\ndescription: d\ntask_type: order\n---\n## Where to look\n- Next? -> search_next\n"


@pytest.fixture
def skills():
    return read_skills({"order": SKILL})


def test_the_packaged_prompts_are_complete():
    prompts = PromptDirectory()
    condensing = [
        f"{tool}_{part}"
        for tool in ("view_node", "search_similar", "observe_frame")
        for part in ("extract", "verify")
    ]
    assert prompts.list() == sorted(["system", "protocol", *condensing])
    assert all(len(prompts.read(name)) > 200 for name in prompts.list())


def test_a_system_prompt_has_role_protocol_tools_and_skill_in_this_order(tools, skills):
    text = system_prompt(PromptDirectory(), tools, skills, "order")
    prompts = PromptDirectory()
    parts = [
        prompts.read("system").strip(),
        prompts.read("protocol").strip(),
        tools.describe(),
        skills.text_for("order"),
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_the_skills_lines_are_the_only_lines_in_a_system_prompt(tools, skills):
    text = system_prompt(PromptDirectory(), tools, skills, "order")
    assert parse_lines(text) == parse_lines(SKILL)


def test_places_that_a_line_names_are_explained(tools, skills):
    text = system_prompt(PromptDirectory(), tools, skills, "order")
    assert "- `search_next`: the best moment and the one right after it" in text
    assert "search_previous" not in text


def test_without_skills_there_is_no_skill_part(tools):
    text = system_prompt(PromptDirectory(), tools, read_skills({}, skill_mode="none"), "order")
    assert "# Skill" not in text
    assert "# Places" not in text


def test_the_protocol_names_the_tool_that_ends_the_work():
    assert "submit_answer" in TOOLS
    assert "submit_answer" in PromptDirectory().read("protocol")


@pytest.mark.parametrize("options", [("a cat", "a dog"), ("A. a cat", "B. a dog")])
def test_options_are_shown_with_one_letter_each(options):
    text = user_prompt(GeneratedQuestion("q1", "v", "t", "Which one?", options, "A"))
    assert text.splitlines()[:4] == ["Question: Which one?", "", "Options:", "A. a cat"]
    assert "letter" in text


@pytest.mark.parametrize(("kind", "told"), [("text", "few words"), ("number", "digits")])
def test_free_questions_say_how_to_answer_and_list_no_options(kind, told):
    text = user_prompt(GeneratedQuestion("q1", "v", "t", "What?", (), "3", answer_kind=kind))
    assert told in text
    assert "Options" not in text


def test_neither_ids_nor_the_answer_reach_the_model():
    question = GeneratedQuestion("qid-1", "video-1", "t", "Which one?", ("a cat", "a dog"), "B", ("node-1",))
    assert not {"qid-1", "video-1", "node-1"} & set(user_prompt(question).split())


def test_a_prompt_that_is_not_there_is_named(tmp_path):
    (tmp_path / "system.md").write_text("x", encoding="utf-8")
    for name in ("protocol", "../system", "/etc/passwd"):
        with pytest.raises(ValueError, match=r"there are system"):
            PromptDirectory(tmp_path).read(name)


def test_prompt_files_from_any_editor_read_the_same(tmp_path):
    (tmp_path / "system.md").write_bytes(b"\xef\xbb\xbfOne\r\nTwo\r\n")
    assert PromptDirectory(tmp_path).read("system") == "One\nTwo\n"


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    (folder / "system.md").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="leads out of"):
        PromptDirectory(folder).read("system")
