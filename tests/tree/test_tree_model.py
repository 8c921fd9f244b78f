"""What a tree file may be, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tree.model import VideoTree, load_tree


def write(tmp_path, raw):
    path = tmp_path / "tiny.json"
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
    return path


def refusal(tmp_path, raw):
    path = write(tmp_path, raw)
    with pytest.raises(ValueError, match=r"tiny\.json") as caught:
        load_tree(path)
    return str(caught.value)


def test_further_keys_of_film_and_nodes_are_kept(tmp_path, raw_film):
    tree = load_tree(write(tmp_path, raw_film))
    assert tree.title == "The Paper Boat"
    assert tree.nodes["m2"].subtitle_source == "paraphrase"


def test_a_byte_order_mark_is_no_obstacle(tmp_path, raw_film):
    assert load_tree(write(tmp_path, "\ufeff" + json.dumps(raw_film))).videoID == "tiny"


def test_film_order_follows_time_and_not_the_file(raw_film):
    raw_film["nodes"] = dict(reversed(raw_film["nodes"].items()))
    tree = VideoTree.model_validate(raw_film)
    assert tree.film_order == {1: ("s1", "s2"), 2: ("e1", "e2", "e3"), 3: ("m1", "m2", "m3", "m4", "m5")}
    assert tree.neighbours["m3"] == ("m2", "m4")
    assert tree.neighbours["m1"] == (None, "m2")
    assert tree.neighbours["s2"] == ("s1", None)
    assert list(tree.ancestors("m4")) == ["e3", "s2"]


@pytest.mark.parametrize(
    ("node_id", "change", "named"),
    [
        ("e1", {"children_ids": ["m1", "m2", "ghost"]}, "'e1': its child 'ghost' does not exist"),
        ("e3", {"children_ids": ["m4", "m5", "m1"]}, "'m1': is a child of 'e1' and again of 'e3'"),
        ("e1", {"children_ids": ["m1", "m1", "m2"]}, "'m1': is a child of 'e1' and again of 'e1'"),
        ("s1", {"children_ids": ["e1", "m3"]}, "'s1': its child 'm3' has level 3, not 2"),
        ("m1", {"children_ids": ["s1"]}, "'m1': its child 's1' has level 1, not 4"),
        ("e2", {"children_ids": []}, "'m3': has level 3 but is nobody's child"),
        ("m1", {"level": 4}, "nodes.m1.level"),
        ("m1", {"time_range": [9, 3]}, "nodes.m1.time_range"),
        ("m1", {"time_range": [-1, 3]}, "nodes.m1.time_range"),
        ("m1", {"time_range": [0, float("nan")]}, "nodes.m1.time_range"),
        ("m1", {"time_range": [0, float("inf")]}, "nodes.m1.time_range"),
        ("m1", {"card": None}, "nodes.m1.card"),
        ("m1", {"frame": "../../secret.jpg"}, "nodes.m1.frame"),
        ("m1", {"frame": "/etc/passwd"}, "nodes.m1.frame"),
        ("m1", {"frame": "..\\secret.jpg"}, "nodes.m1.frame"),
        ("m1", {"frame": "C:secret.jpg"}, "nodes.m1.frame"),
        ("m1", {"frame": "notes.txt"}, "nodes.m1.frame"),
        ("m1", {"frame": "tree.json"}, "nodes.m1.frame"),
        ("m1", {"frame": "m1.bmp"}, "must end in .gif, .jpeg, .jpg, .png, .webp"),
        ("m1", {"frame": "a\0b.jpg"}, "nodes.m1.frame"),
    ],
)
def test_a_broken_node_is_named(tmp_path, raw_film, node_id, change, named):
    raw_film["nodes"][node_id].update(change)
    assert named in refusal(tmp_path, raw_film)


def test_a_cycle_is_refused(tmp_path, raw_film):
    raw_film["nodes"]["e1"]["children_ids"] = ["e2"]
    raw_film["nodes"]["e2"]["children_ids"] = ["e1"]
    assert "level 2, not 3" in refusal(tmp_path, raw_film)


def test_ids_that_no_call_could_name_are_refused(tmp_path, raw_film):
    for reserved in ("root", "first", "last", " ", "", " s2", "s2\n"):
        raw = json.loads(json.dumps(raw_film).replace('"s2"', json.dumps(reserved)))
        assert repr(reserved) in refusal(tmp_path, raw)


def test_an_id_that_stands_twice_is_refused_and_not_lost(tmp_path, raw_film):
    text = json.dumps(raw_film).replace('"m2": {', '"m1": {')
    assert "'m1' stands twice" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"videoID": "tiny"}', "[" * 200_000, '{"a": ' * 200_000]
)
def test_what_is_no_tree_names_its_file(tmp_path, text):
    refusal(tmp_path, text)


def test_bytes_that_are_no_text_name_their_file(tmp_path):
    (tmp_path / "tiny.json").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ValueError, match=r"tiny\.json"):
        load_tree(tmp_path / "tiny.json")


def test_what_cannot_be_read_names_its_file(tmp_path):
    (tmp_path / "tiny.json").mkdir()
    with pytest.raises(ValueError, match=r"tiny\.json: the tree cannot be read"):
        load_tree(tmp_path / "tiny.json")


def test_a_film_without_nodes_is_refused(tmp_path, raw_film):
    assert "there are none" in refusal(tmp_path, {**raw_film, "nodes": {}})


def test_time_ranges_that_do_not_nest_are_only_warned_of(tmp_path, raw_film, log_lines):
    raw_film["nodes"]["m5"]["time_range"] = [45, 61]
    assert load_tree(write(tmp_path, raw_film)).nodes["m5"].time_range == (45, 61)
    assert [line for line in log_lines if "'m5'" in line and "1 of 10 nodes" in line]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"level": "3"}, "nodes.m1.level: 1 (scene), 2 (event) or 3 (moment) is expected, found '3'"),
        (
            {"time_range": ["0:35", 52]},
            "start and end in seconds are expected, like [12.5, 30], found '0:35'",
        ),
        ({"time_range": [35]}, "start and end in seconds are expected"),
        ({"children_ids": None}, "nodes.m1.children_ids: a list of node ids is expected"),
        ({"subtitle": None}, "nodes.m1.subtitle: Input should be a valid string, found None"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_what_is_expected(tmp_path, raw_film, change, said):
    raw_film["nodes"]["m1"] |= change
    assert said in refusal(tmp_path, raw_film)


def test_a_missing_field_is_told_with_what_is_there_instead(tmp_path, raw_film):
    raw_film["nodes"]["m1"]["start"] = raw_film["nodes"]["m1"].pop("time_range")
    told = refusal(tmp_path, raw_film)
    assert "nodes.m1.time_range: is missing; found level, " in told
    assert told.endswith("start")


def test_the_two_ends_of_a_mistyped_child_are_told_together(tmp_path, raw_film):
    raw_film["nodes"]["e1"]["children_ids"] = ["m1", "m22"]
    told = refusal(tmp_path, raw_film)
    assert "tiny.json: node 'e1': its child 'm22' does not exist; node 'm2': has level 3 but" in told


def test_many_problems_of_a_tree_are_told_briefly(tmp_path, raw_film):
    raw_film["nodes"]["e1"]["children_ids"] = [f"ghost{number}" for number in range(50)]
    told = refusal(tmp_path, raw_film)
    assert told.count("does not exist") == 3
    assert told.endswith("and 49 more")  # 47 ghosts, and the two moments that they replaced


def test_a_tree_without_any_text_is_refused_with_the_keys_that_it_has(tmp_path, raw_film):
    for node in raw_film["nodes"].values():
        node["caption"] = node.pop("card")
        node.pop("subtitle", None)
        node.pop("frame", None)
    told = refusal(tmp_path, raw_film)
    assert "nodes: none has a card, a subtitle or a frame; rename what holds the text, found caption" in told


def test_a_tree_without_moments_is_read_with_a_warning(tmp_path, raw_film, log_lines):
    nodes = raw_film["nodes"]
    raw_film["nodes"] = {name: node for name, node in nodes.items() if node["level"] < 3}
    for node in raw_film["nodes"].values():
        node["children_ids"] = [child for child in node["children_ids"] if child in raw_film["nodes"]]
    assert load_tree(write(tmp_path, raw_film)).film_order[3] == ()
    assert [line for line in log_lines if "tiny: no node has level 3" in line]


def test_a_hundred_thousand_nodes_keep_their_order():
    moments = [f"m{number}" for number in range(99_998)]
    nodes = {
        "s": {"level": 1, "time_range": [0, 99_998], "children_ids": ["e"]},
        "e": {"level": 2, "time_range": [0, 99_998], "children_ids": moments},
        **{m: {"level": 3, "time_range": [n, n + 1], "card": f"number {n}"} for n, m in enumerate(moments)},
    }
    tree = VideoTree(videoID="long", duration_seconds=99_998, nodes=nodes)
    assert tree.film_order[3] == tuple(moments)
    assert tree.neighbours["m5"] == ("m4", "m6")


IDS = st.sampled_from(["a", "b", "c", "d", "e"])
NODES = st.dictionaries(
    IDS,
    st.fixed_dictionaries(
        {
            "level": st.integers(1, 3),
            "time_range": st.tuples(st.integers(0, 3), st.integers(3, 9)),
            "children_ids": st.lists(IDS, max_size=2),
            "card": st.just("a hat"),
        }
    ),
)


@given(NODES)
def test_whatever_stands_for_the_nodes_ends_in_a_tree_or_a_value_error(nodes):
    try:
        tree = VideoTree.model_validate({"videoID": "x", "duration_seconds": 9, "nodes": nodes})
    except ValueError:
        return
    assert sorted(node_id for ids in tree.film_order.values() for node_id in ids) == sorted(tree.nodes)
    assert all(list(tree.ancestors(node_id))[-1:] != [node_id] for node_id in tree.nodes)
