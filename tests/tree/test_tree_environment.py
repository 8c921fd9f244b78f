"""A folder of films."""

import json

import pytest

from core.tree.environment import TreeEnvironment
from core.types import GeneratedQuestion


def question(video_id):
    return GeneratedQuestion("q1", video_id, "detail", "What?", ("a", "b"), "A")


@pytest.fixture
def folder(tmp_path, raw_film):
    trees = tmp_path / "trees"
    (trees / "other").mkdir(parents=True)
    (trees / "tiny.json").write_text(json.dumps(raw_film), encoding="utf-8")
    (trees / "other" / "tree.json").write_text(json.dumps({**raw_film, "videoID": "other"}), encoding="utf-8")
    return trees


def test_both_layouts_are_found(folder):
    assert TreeEnvironment(folder).video_ids == ("other", "tiny")


async def test_a_question_gets_the_tools_of_its_film(folder):
    environment = TreeEnvironment(folder)
    told = await environment.tools_for(question("tiny"))("view_node", {"node_id": "first", "question": "q"})
    assert json.loads(told)["nodes"][0]["id"] == "m1"


def test_a_film_and_its_index_are_read_once(folder):
    environment = TreeEnvironment(folder)
    first = environment.film("tiny")
    (folder / "tiny.json").unlink()
    assert environment.film("tiny") is first


@pytest.mark.parametrize("video_id", ["tiny2", "../trees/tiny", "/etc/passwd", "other/tree", "*"])
def test_a_video_that_is_not_there_is_an_error_whatever_its_name_says(folder, video_id):
    with pytest.raises(ValueError, match="no tree for video"):
        TreeEnvironment(folder).tools_for(question(video_id))


def test_the_nearest_name_is_suggested(folder):
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        TreeEnvironment(folder).film("tinny")


def test_a_file_that_holds_another_film_is_refused(folder, raw_film):
    (folder / "third.json").write_text(json.dumps(raw_film), encoding="utf-8")
    with pytest.raises(ValueError, match=r"third\.json: videoID is 'tiny'"):
        TreeEnvironment(folder).film("third")


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path, raw_film):
    (tmp_path / "outside.json").write_text(json.dumps(raw_film), encoding="utf-8")
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(ValueError, match="leads out of"):
        TreeEnvironment(folder)


@pytest.mark.parametrize("target", ["nowhere.json", None])
def test_a_folder_or_a_dead_link_in_a_trees_place_is_named_when_it_is_asked_for(folder, target):
    place = folder / "third.json"
    place.mkdir() if target is None else place.symlink_to(folder / target)
    environment = TreeEnvironment(folder)
    assert environment.film("tiny").tree.videoID == "tiny"
    with pytest.raises(ValueError, match=r"third\.json: the tree cannot be read"):
        environment.film("third")


def test_links_in_a_circle_are_refused(folder):
    (folder / "third.json").symlink_to(folder / "third.json")
    with pytest.raises(ValueError, match=r"third\.json: leads out of"):
        TreeEnvironment(folder)


def test_two_trees_of_one_film_are_refused(folder, raw_film):
    (folder / "tiny").mkdir()
    (folder / "tiny" / "tree.json").write_text(json.dumps(raw_film), encoding="utf-8")
    with pytest.raises(ValueError, match="another tree of 'tiny'"):
        TreeEnvironment(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        TreeEnvironment(tmp_path / "nowhere")
