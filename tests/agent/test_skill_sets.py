"""Skill files, and what of them reaches a prompt."""

import json

import pytest

from core.agent.skill_tools import SkillTools
from core.agent.skills import SkillError, discover_skills, read_skills
from core.protocols import ToolError


def skill_file(name, body="Look well.", **keys):
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())
    return f"---\nname: {name}\ndescription: About {name}.\n{head}---\n\n{body}\n"


TEXTS = {
    "manners.md": skill_file("manners", "Be brief.", always=True),
    "order.md": skill_file("order", "Follow time.", task_type="order"),
    "default-strategy.md": skill_file("default-strategy", "Search first."),
    "maps.md": skill_file("maps", "How to read maps."),
}


def test_a_type_gets_its_own_skill_and_the_others_the_default():
    skills = read_skills(TEXTS)
    assert skills.text_for("order") == "# Skill: manners\n\nBe brief.\n\n# Skill: order\n\nFollow time."
    assert (
        skills.text_for("why")
        == "# Skill: manners\n\nBe brief.\n\n# Skill: default-strategy\n\nSearch first."
    )


def test_no_skills_mode_says_nothing():
    assert read_skills(TEXTS, skill_mode="none").text_for("order") == ""


def test_manual_mode_adds_the_catalogue_of_skills_bound_to_nothing():
    text = read_skills(TEXTS, skill_mode="manual").text_for("order")
    assert "Follow time." in text
    assert "- `maps`: About maps." in text
    assert "How to read maps." not in text


def test_a_type_without_any_skill_is_an_error_that_says_what_to_add():
    skills = read_skills({"order.md": TEXTS["order.md"]})
    with pytest.raises(SkillError, match=r"task_type: why.*default-strategy\.md"):
        skills.text_for("why")


def test_the_body_is_rendered_verbatim():
    body = "Ümlaut — 雨\n\n```\n{not a placeholder}\n```"
    assert body in read_skills({"a": skill_file("a", body, task_type="t")}).text_for("t")


def test_files_from_any_editor_read_the_same(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert discover_skills(tmp_path) == read_skills(TEXTS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Just prose.", "no front matter; begin with `---`"),
        ("---\nname: [\n---\nx", "front matter is not YAML"),
        ("---\nname: x\n---\nx", "description: Field required"),
        ("---\nname: x\ndescription: 3\n---\nx", "description: Input should be a valid string"),
        ("---\nname: x\ndescription: y\nalways: maybe\n---\nx", "always: Input should be a valid boolean"),
        ("---\njust words\n---\nx", "front matter"),
        (skill_file("x", "## Where to look\n- Fits. -> guess"), "line 7: unknown tactic 'guess'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_mend(tmp_path, text, told):
    (tmp_path / "bad.md").write_text(text, encoding="utf-8")
    with pytest.raises(SkillError) as caught:
        discover_skills(tmp_path)
    assert "bad.md" in str(caught.value)
    assert told in str(caught.value)


def test_bytes_that_are_no_text_name_their_file(tmp_path):
    (tmp_path / "bad.md").write_bytes(b"\xff\xfe")
    with pytest.raises(SkillError, match=r"bad\.md: not UTF-8"):
        discover_skills(tmp_path)


@pytest.mark.parametrize("target", ["nowhere.md", None])
def test_a_folder_or_a_dead_link_in_a_skills_place_is_named(tmp_path, target):
    place = tmp_path / "bad.md"
    place.mkdir() if target is None else place.symlink_to(tmp_path / target)
    with pytest.raises(SkillError, match=r"bad\.md: cannot be read"):
        discover_skills(tmp_path)


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "bad.md").symlink_to(tmp_path / "bad.md")
    with pytest.raises(SkillError, match=r"bad\.md: leads out of"):
        discover_skills(tmp_path)


def test_two_skills_for_one_type_are_refused():
    with pytest.raises(SkillError, match=r"order\.md: task type 'order' already has another\.md"):
        read_skills({**TEXTS, "another.md": skill_file("another", task_type="order")})


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = tmp_path / "skills"
    folder.mkdir()
    (tmp_path / "secret.md").write_text(TEXTS["maps.md"], encoding="utf-8")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(SkillError, match="leads out of"):
        discover_skills(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SkillError, match="no such folder"):
        discover_skills(tmp_path / "nowhere")


def test_an_always_skill_takes_no_type_from_another():
    always = skill_file("tone", "Be kind.", always=True, task_type="order")
    text = read_skills({**TEXTS, "a-tone.md": always, "tone.md": always}).text_for("order")
    assert text.count("Be kind.") == 2
    assert "Follow time." in text


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="auto, manual, none"):
        read_skills(TEXTS, skill_mode="sometimes")


async def test_the_catalogue_can_be_read_in_manual_mode(tools):
    reading = SkillTools(tools, read_skills(TEXTS, skill_mode="manual"))
    assert json.loads(await reading("read_skill", {"name": "maps"}))["text"] == "How to read maps."
    assert "read_skill(name)" in reading.describe()
    assert "view_node(" in reading.describe()
    with pytest.raises(ToolError, match=r"no skill '\.\./x'; there are maps"):
        await reading("read_skill", {"name": "../x"})


async def test_outside_manual_mode_there_is_no_such_tool(tools):
    reading = SkillTools(tools, read_skills(TEXTS))
    assert reading.describe() == tools.describe()
    with pytest.raises(ToolError, match="no tool 'read_skill'"):
        await reading("read_skill", {"name": "maps"})
