"""Reading a benchmark: good files in every format, and for bad ones where, what and how to mend it."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_questions import item, made

from core.questions import load_benchmark

EVERYTHING = item(
    question_id="q2",
    source_nodes=["L3_01", "L3_02"],
    difficulty="hard",
    answer_kind="choice",
    group_id="g1",
    question='Who says "no, never",\nand to whom? 🐐 שלום',
)
ITEMS = [item(), EVERYTHING]
FORMATS = ["json", "jsonl", "csv", "parquet"]


def write_items(path, items):
    """Writes items in the format of the path's ending; lists in a CSV as JSON text."""
    columns = list(dict.fromkeys(name for each in items for name in each))
    if path.suffix == ".json":
        path.write_text(json.dumps(items), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    elif path.suffix == ".parquet":
        table = {name: [each.get(name) for each in items] for name in columns}
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            for each in items:
                cells = {name: json.dumps(v) if isinstance(v, list) else v for name, v in each.items()}
                writer.writerow(cells)
    return path


def refusal(path):
    with pytest.raises(ValueError, match=r"\S") as refused:
        load_benchmark(path)
    return str(refused.value)


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_questions(tmp_path, ending):
    write_items(tmp_path / f"film.{ending}", ITEMS)
    expected = [made(), made(**EVERYTHING)]
    assert load_benchmark(tmp_path) == expected
    assert load_benchmark(str(tmp_path / f"film.{ending}")) == expected


def test_files_come_by_name_whatever_their_format_or_age(tmp_path):
    for name, question_id in [("c.csv", "q3"), ("a.parquet", "q1"), ("d.JSON", "q4"), ("b.jsonl", "q2")]:
        lower = tmp_path / name.lower()
        write_items(lower, [item(question_id=question_id)]).rename(tmp_path / name)
    assert [question.question_id for question in load_benchmark(tmp_path)] == ["q1", "q2", "q3", "q4"]


def test_other_files_hidden_ones_and_folders_are_left_alone(tmp_path):
    write_items(tmp_path / "film.json", ITEMS)
    (tmp_path / "README.md").write_text("not questions")
    (tmp_path / "._film.json").write_bytes(b"\x00\x05")
    (tmp_path / "old.json").mkdir()
    assert len(load_benchmark(tmp_path)) == 2


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv"])
def test_byte_order_mark_and_crlf_change_nothing(tmp_path, ending):
    plain = write_items(tmp_path / f"film.{ending}", [item(), item(question_id="q2")])
    expected = load_benchmark(plain)
    text = plain.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    plain.write_bytes(b"\xef\xbb\xbf" + text)
    assert load_benchmark(plain) == expected


def test_line_separators_inside_json_text_end_no_line(tmp_path):
    question = "first\u2028second\x85third"
    path = tmp_path / "film.jsonl"
    path.write_text(json.dumps(item(question=question), ensure_ascii=False), encoding="utf-8")
    assert load_benchmark(path)[0].question == question


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("text", ["🐐" * 20, "מה נופל מידי האופה?", "x" * 3_000_000, 'a "b", c\n\nd'])
def test_huge_right_to_left_and_quoted_texts_arrive_whole(tmp_path, ending, text):
    path = write_items(tmp_path / f"film.{ending}", [item(question=text, options=[text, "none"])])
    question = load_benchmark(path)[0]
    assert (question.question, question.options[0]) == (text, text)


def test_reading_a_huge_cell_leaves_the_csv_module_as_it_was(tmp_path):
    before = csv.field_size_limit()
    load_benchmark(write_items(tmp_path / "film.csv", [item(question="x" * 200_000)]))
    assert csv.field_size_limit() == before


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1), min_size=1))
def test_any_text_survives_json_and_csv(tmp_path_factory, texts):
    texts = [text.strip() or "x" for text in texts]
    items = [item(question_id=f"q{number}", question=f"?{text}") for number, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("any")
    for ending in ("json", "csv"):
        loaded = load_benchmark(write_items(folder / f"film.{ending}", items))
        assert [question.question for question in loaded] == [f"?{text}" for text in texts]


@pytest.mark.parametrize(
    "cell", ['["red", "blue"]', "['red', 'blue']", "('red', 'blue')", ' ["red","blue"]\n']
)
def test_options_in_a_cell_are_json_or_a_python_list(tmp_path, cell):
    path = write_items(tmp_path / "film.csv", [item(options=cell)])
    assert load_benchmark(path)[0].options == ("red", "blue")


@pytest.mark.parametrize("cell", ["red|blue", "red", '{"A": "red"}', "[" * 5000, "__import__('os')", "2"])
def test_options_that_are_no_list_are_told(tmp_path, cell):
    told = refusal(write_items(tmp_path / "film.csv", [item(options=cell)]))
    assert 'film.csv: line 2: options: a list like ["first", "second"] is expected' in told


def test_options_without_letters_are_lettered_in_order(tmp_path):
    path = write_items(tmp_path / "film.json", [item(options=["red", "C: drive"], answer="B")])
    assert load_benchmark(path)[0].answer == "B"


def test_numbers_as_ids_options_and_answers_are_written_out(tmp_path):
    items = [
        item(question_id=7, options=[1, 2.5]),
        item(question_id=8, options=None, answer=3.5, answer_kind="number"),
    ]
    first, second = load_benchmark(write_items(tmp_path / "film.json", items))
    assert (first.question_id, first.options, second.answer) == ("7", ("1", "2.5"), "3.5")


@pytest.mark.parametrize("ending", FORMATS)
def test_text_and_number_questions_need_no_options(tmp_path, ending):
    items = [
        item(options=None, answer="a hat\nthe hat", answer_kind="text"),
        item(question_id="q2", options=None, answer="4", answer_kind="number"),
    ]
    loaded = load_benchmark(write_items(tmp_path / f"film.{ending}", items))
    assert [(question.answer_kind, question.options) for question in loaded] == [("text", ()), ("number", ())]


@pytest.mark.parametrize("ending", FORMATS)
def test_video_mme_tables_are_read_as_they_are_published(tmp_path, ending):
    published = {
        "video_id": "001",
        "duration": "short",
        "domain": "Knowledge",
        "sub_category": "History",
        "url": "somewhere",
        "videoID": "a-Film_1",
        "question_id": "001-1",
        "task_type": "Counting Problem",
        "question": "How many hats are there?",
        "options": ["A. 1.", "B. 2.", "C. 3.", "D. 4."],
        "answer": "C",
    }
    [question] = load_benchmark(write_items(tmp_path / f"test.{ending}", [published]))
    assert (question.video_id, question.question_id) == ("a-Film_1", "001-1")
    assert (question.task_type, question.answer, len(question.options)) == ("Counting Problem", "C", 4)


def test_row_numbers_that_pandas_wrote_are_ignored(tmp_path):
    for name in ("", "Unnamed: 0", "__index_level_0__"):
        path = write_items(tmp_path / "film.csv", [{name: "0"} | item()])
        assert load_benchmark(path) == [made()]


# What is wrong with one item, and what is said about it.
BAD_ITEMS = [
    ({"answer": "E"}, "question 'bad': answer: 'E' is not the letter of an option (A, B, C, D)"),
    (
        {"answer": "a hat"},
        "question 'bad': answer: 'a hat' is not the letter of an option (A, B, C, D); that is option B: write B",
    ),
    ({"answer": None}, "answer: is missing"),
    ({"options": None}, "options: is missing"),
    ({"options": ["alone"]}, "question 'bad': options: a choice question needs at least two, found 1"),
    ({"options": ["same", "same"]}, "question 'bad': options: two of them are the same"),
    ({"question_id": None}, "question_id: is missing"),
    ({"answer_kind": "essay"}, "answer_kind: Input should be 'choice', 'text' or 'number', found 'essay'"),
    ({"answer_kind": "text"}, "question 'bad': options: a text question has none, found 4"),
    ({"anser": "B", "answer": None}, "unknown field 'anser'; did you mean 'answer'?"),
    ({"Task Type": "order"}, "unknown field 'Task Type'; did you mean 'task_type'?"),
    ({"xyzzy": "1"}, "unknown field 'xyzzy'"),
]
PLACES = {
    "json": "item 2 (index 1)",
    "jsonl": "line 2",
    "csv": "line 3",
    "parquet": "row 2 (index 1)",
}


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(("changes", "said"), BAD_ITEMS)
def test_a_bad_item_names_file_position_field_and_mend(tmp_path, ending, changes, said):
    items = [item(), item(**{"question_id": "bad"} | changes)]
    path = write_items(tmp_path / f"film.{ending}", items)
    if said.startswith("unknown"):  # in a table the first row has that column too
        assert f"film.{ending}: " in refusal(path)
        assert said in refusal(path)
    else:
        assert f"{path}: {PLACES[ending]}: {said}" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"question": ["?"]}, "question: text is expected, found ['?']"),
        ({"question_id": True}, "question_id: text is expected, found True"),
        ({"video_id": 1.5}, "video_id: text is expected, found 1.5"),
        ({"question": "\ud83d"}, "question: half of a surrogate pair"),
        ({"question": ""}, "question 'q1': question is blank"),
        ({"options": ["a", None]}, "options: number 2 is missing"),
        ({"options": ["a", ["b"]]}, "options: text is expected, found ['b']"),
        ({"options": {"A": "a"}}, "options: a list like"),
        ({"source_nodes": "L3_01"}, "source_nodes: a list like"),
        ({"answer": float("nan")}, "answer: is missing"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_by_field(tmp_path, changes, said):
    path = tmp_path / "film.json"
    path.write_text(json.dumps([item() | changes]))
    assert f"film.json: item 1 (index 0): {said}" in refusal(path)


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "  "])
def test_nan_and_empty_cells_are_missing_values(tmp_path, cell):
    path = write_items(tmp_path / "film.csv", [item(answer=cell, difficulty=cell)])
    assert "film.csv: line 2: answer: is missing" in refusal(path)
    path = write_items(tmp_path / "film.csv", [item(difficulty=cell)])
    assert load_benchmark(path)[0].difficulty == "medium"


def test_nan_cells_of_a_parquet_table_are_missing_values(tmp_path):
    table = pyarrow.table({name: [value] for name, value in item().items()} | {"answer": [float("nan")]})
    pyarrow.parquet.write_table(table, tmp_path / "film.parquet")
    assert "row 1 (index 0): answer: is missing" in refusal(tmp_path)


def test_the_line_of_a_csv_row_counts_line_breaks_in_cells(tmp_path):
    items = [item(question="one\ntwo\nthree"), item(question_id="q2", answer="E")]
    assert "line 5: question 'q2': answer" in refusal(write_items(tmp_path / "film.csv", items))


def test_bad_items_are_told_all_at_once_over_all_files(tmp_path):
    write_items(tmp_path / "a.json", [item(answer="E"), item(question_id="q2", task_type=" ")])
    write_items(tmp_path / "b.jsonl", [item(question_id="q3"), item(question_id="q4", question="")])
    told = refusal(tmp_path)
    for said in ("a.json: item 1", "a.json: item 2", "b.jsonl: line 2"):
        assert said in told
    assert len(told.splitlines()) == 4


def test_a_thousand_bad_items_are_told_briefly(tmp_path):
    items = [item(question_id=f"q{number}", answer="E") for number in range(1000)]
    told = refusal(write_items(tmp_path / "film.json", items))
    assert told.endswith("... and 980 more")
    assert len(told.splitlines()) == 22


def test_a_problem_that_all_items_share_is_told_once(tmp_path):
    items = [item(question_id=f"q{number}", answer=None, anser="B") for number in range(36)]
    told = refusal(write_items(tmp_path / "film.csv", items))
    assert told.splitlines()[1:] == [
        f"  {tmp_path / 'film.csv'}: line 2 and 35 more: unknown field 'anser'; did you mean 'answer'?"
    ]


def test_a_table_with_its_own_column_names_is_told_in_a_few_lines(tmp_path):
    own = {"id": "q1", "clip": "film", "A": "red", "B": "blue", "annotator": "me"}
    rows = [own | item(question_id=None, video_id=None, options=None) for _ in range(99)]
    told = refusal(write_items(tmp_path / "film.csv", rows)).splitlines()[1:]
    assert [line.partition(" and 98 more: ")[2] for line in told] == [
        "unknown fields 'id', 'clip', 'A', 'B', 'annotator'; rename them, or take out what is none of "
        "question_id, video_id, task_type, question, options, answer, source_nodes, difficulty, answer_kind, "
        "group_id",
        "question_id: is missing",
        "video_id: is missing",
        'options: is missing; they stand together as a list, in a table in one cell: ["first", "second"]',
    ]


def test_a_question_that_stands_twice_names_both_places(tmp_path):
    write_items(tmp_path / "a.json", [item()])
    write_items(tmp_path / "b.jsonl", [item(question_id="q2"), item(question="Once more?")])
    told = refusal(tmp_path)
    assert f"{tmp_path / 'b.jsonl'}: line 2: question_id: 'q1' of video 'film' stands already at" in told
    assert f"{tmp_path / 'a.json'}: item 1 (index 0)" in told


def test_ids_that_clash_between_videos_get_their_video_and_others_stay(tmp_path):
    items = [item(), item(video_id="other"), item(video_id="other", question_id="q2")]
    loaded = load_benchmark(write_items(tmp_path / "all.json", items))
    assert [question.question_id for question in loaded] == ["film/q1", "other/q1", "q2"]


def test_an_id_that_only_the_renaming_makes_double_is_told(tmp_path):
    items = [item(), item(video_id="other"), item(video_id="third", question_id="film/q1")]
    assert "'film/q1' arises twice" in refusal(write_items(tmp_path / "all.json", items))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("123")), min_size=1, unique=True))
def test_loaded_ids_are_unique_and_no_question_is_lost(tmp_path_factory, keys):
    items = [item(video_id=video_id, question_id=question_id) for video_id, question_id in keys]
    path = write_items(tmp_path_factory.mktemp("ids") / "all.json", items)
    loaded = load_benchmark(path)
    assert len({question.question_id for question in loaded}) == len(loaded) == len(keys)
    assert [question.video_id for question in loaded] == [video_id for video_id, _ in keys]


def test_nothing_to_read_is_told_with_the_mend(tmp_path):
    assert "no such file or folder" in refusal(tmp_path / "absent")
    assert "no questions in it; put files in it that end in .json, .jsonl, .csv, .parquet" in refusal(
        tmp_path
    )
    (tmp_path / "notes.txt").write_text("?")
    assert "no questions in it" in refusal(tmp_path)
    assert "questions are read from .json, .jsonl, .csv, .parquet, not from .txt" in refusal(
        tmp_path / "notes.txt"
    )


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "[]"), ("a.jsonl", "\n\n"), ("a.csv", ""), ("b.csv", "answer\n")]
)
def test_files_without_items_are_no_benchmark(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert "no questions in it; its files are empty" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b'[{"question_id": ', "not readable as JSON: Expecting value: line 1 column 18"),
        ("a.json", b'{"question_id": "q1"}', "a list of questions is expected, found dict"),
        ("a.json", b'[["q1"]]', "item 1 (index 0): an object with the fields of a question is expected"),
        ("a.json", b"[" * 100_000, "not readable as JSON"),
        ("a.json", b'[{"answer": "A", "answer": "B"}]', "the field 'answer' stands twice in one item"),
        ("a.json", b"", "not readable as JSON"),
        ("a.jsonl", b'\n{"answer"}\n', "line 2: not readable as JSON"),
        ("a.jsonl", b"[" * 100_000, "line 1: not readable as JSON"),
        ("a.json", "[{'é'}]".encode("latin-1"), "not UTF-8 at byte 3; save it as UTF-8"),
        ("a.csv", "question_id\nq1".encode("utf-16"), "not UTF-8 at byte 0"),
        ("a.csv", b"answer,answer\nA,B\n", "line 1: the column 'answer' stands twice"),
        ("a.csv", b"answer,task_type\nA\n", "line 2: 1 cells for 2 columns"),
        ("a.csv", b"answer\nA\nA,B\n", "line 3: 2 cells for 1 columns; put text with commas"),
        ("a.csv", b'answer\nA\n"B\n', "line 3: not readable as CSV"),
        ("a.csv", b"question_id;answer\nq1;A\n", "line 1: columns are parted by ';'; save"),
        ("a.parquet", b"PAR1 and no more", "not readable as Parquet"),
        ("a.parquet", b"", "not readable as Parquet"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    told = refusal(tmp_path)
    assert f"{tmp_path / name}: " in told
    assert said in told


@pytest.mark.parametrize("ending", FORMATS)
@given(content=st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(tmp_path_factory, ending, content):
    path = tmp_path_factory.mktemp("garbage") / f"film.{ending}"
    path.write_bytes(content)
    assert str(path) in refusal(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*EVERYTHING, "videoID"]), json_values))
def test_any_values_in_the_fields_give_a_question_or_a_told_problem(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("values") / "film.json"
    path.write_text(json.dumps([EVERYTHING | changes]))
    try:
        told = ""
        loaded = load_benchmark(path)
    except ValueError as error:
        told, loaded = str(error), []
    assert loaded or "item 1 (index 0): " in told


@pytest.mark.parametrize(("delimiter", "said"), [(";", "';'"), ("\t", r"'\\t'"), ("|", r"'\|'")])
def test_a_table_with_another_delimiter_is_told_by_it(tmp_path, delimiter, said):
    rows = [list(item()), [json.dumps(v) if isinstance(v, list) else v for v in item().values()]]
    with (tmp_path / "q.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    with pytest.raises(ValueError, match=rf"q\.csv: line 1: columns are parted by {said}; save .* commas"):
        load_benchmark(tmp_path)


def test_options_that_pandas_wrote_as_a_numpy_array_are_read(tmp_path):
    options = ["A. a hat", "B. the baker's goat", 'C. "no"', "D. a [long] text, with commas " * 4]
    pandas.DataFrame([{**item(answer="C"), "options": np.array(options, dtype=object)}]).to_csv(
        tmp_path / "q.csv", index=False
    )
    assert "' \"" in (tmp_path / "q.csv").read_text().replace('""', '"')  # no commas between them
    (question,) = load_benchmark(tmp_path)
    assert question.options == tuple(map(str.strip, options))


@pytest.mark.parametrize("method", ["read_bytes", "iterdir"])
def test_what_the_system_does_not_let_us_read_is_named(tmp_path, monkeypatch, method):
    write_items(tmp_path / "q.json", ITEMS)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(ValueError, match=rf"{tmp_path.name}.*: could not be read: Permission denied"):
        load_benchmark(tmp_path)
