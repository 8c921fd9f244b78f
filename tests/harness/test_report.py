"""The report: one file that stands alone, runs nothing, and says what the database says."""

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
from html.parser import HTMLParser

import matplotlib
import pytest
from recorded_run import begin, open_log, record_run

from core.evolution.gate_types import GateVerdict
from harness.log import HarnessLog, LogError
from harness.observation import GatePlace, write_dual_metric, write_gate_evidence
from harness.page import percent
from harness.report import is_simulated, write_report
from harness.store import StoreError, VersionMeta, advance_version, init_store
from harness.summary import gates_frame, run_summary

matplotlib.use("Agg")

VOID = {"meta", "img", "br", "link", "input", "hr"}
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "strong", "em", "small",
    "div", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "span",
    "figure", "figcaption", "img",
}  # fmt: skip
EVIL = "\"><img src=x onerror=alert(1)><script>alert(1)</script>'{{ 7 * 7 }}</style></pre>"


class Page(HTMLParser):
    """What a browser makes of a page: tags with their attributes, and text; every tag must be closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The database of a whole simulated run."""
    return asyncio.run(record_run(tmp_path_factory.mktemp("recorded")))


@pytest.fixture(scope="module")
def html(recorded):
    return write_report(recorded, recorded.parent / "report.html").read_text("utf-8")


def assert_stands_alone(html):
    """Nothing is loaded from anywhere and nothing runs."""
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= ALLOWED
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href"):
            assert (
                attributes.get(name, "data:").startswith("data:image/svg+xml;base64,")
                or name not in attributes
            )
    styles = [
        *re.findall(r"<style>(.*?)</style>", html, re.DOTALL),
        *(a.get("style", "") for _, a in page.tags),
    ]
    assert not any(word in style for style in styles for word in ("url(", "@import"))
    policies = [attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


def test_the_file_stands_alone_and_runs_nothing(html):
    assert_stands_alone(html)


def test_every_picture_is_described_in_words(html):
    pictures = [attributes for tag, attributes in Page(html).tags if tag == "img"]
    assert len(pictures) == 5
    assert all(len(picture["alt"]) > 40 for picture in pictures)


def test_the_headline_is_the_final_test_with_its_interval(recorded, html):
    text, summary = Page(html).text, run_summary(recorded).loc["sim"]
    assert f"went from {percent(summary['accuracy_before'])} to {percent(summary['accuracy_after'])}" in text
    low, high = (f"{100 * summary[name]:+.1f}" for name in ("gain_low", "gain_high"))
    assert f"95 % interval {low} to {high}, from a bootstrap over 18 videos" in text


def test_every_gate_is_told_with_its_reason_and_what_became_of_it(recorded, html):
    text = Page(html).text
    for gate in gates_frame(recorded, "sim").itertuples():
        place = f"epoch {gate.epoch}, step {gate.step} {gate.target_file} {gate.fate}"
        assert f"{place} {gate.explanation} {gate.rollouts}" in text


def test_luck_stands_beside_what_was_observed(recorded, html):
    summary = run_summary(recorded).loc["sim"]
    sentence = (
        f"{summary['gates']} gates: {summary['accepted']} accepted, {summary['kept']} kept; had every edit"
    )
    assert sentence in Page(html).text


def test_what_changed_in_the_skills_is_shown_line_by_line(recorded, html):
    best = sqlite3.connect(recorded).execute(
        "SELECT skills_version FROM _runs WHERE run_id = 'sim_final_best'"
    )
    (version,) = best.fetchone()
    text = Page(html).text
    assert f"Skills: from v1 to {version}, the best so far" in text
    assert "+- In `order` questions" in text


def test_a_simulated_run_says_so(recorded, html):
    assert is_simulated(recorded, "sim")
    assert "Simulated. Questions and answers come from a simulated world" in Page(html).text
    assert "a simulated agent" in Page(html).text


def test_a_finished_run_gives_the_same_bytes_again(recorded, html, tmp_path):
    assert write_report(recorded, tmp_path / "again.html").read_text("utf-8") == html


def test_a_run_just_begun_has_a_report(tmp_path):
    with HarnessLog(tmp_path / "harness.db", "new"):
        html = write_report(tmp_path / "harness.db", tmp_path / "report.html").read_text("utf-8")
    assert_stands_alone(html)
    text = Page(html).text
    assert "Nothing has been measured yet." in text
    assert "The run was still going on" in text
    assert "Simulated." not in text


async def test_after_the_baseline_there_is_no_result_yet(tmp_path):
    db = tmp_path / "harness.db"
    with open_log(db, tmp_path) as log:
        await begin(log, tmp_path, seed=3)
    text = Page(write_report(db, tmp_path / "report.html").read_text("utf-8")).text
    assert "Nothing has been measured yet." in text
    assert "The version that the run began with is still the best." in text


async def test_before_the_final_test_the_number_is_called_no_result(tmp_path):
    db = await record_run(tmp_path, epochs=1, steps=1)
    with sqlite3.connect(db) as connection:
        connection.execute("DELETE FROM predictions WHERE run_id GLOB 'sim_final_*'")
        connection.execute("DELETE FROM holdout_eval")
    text = Page(write_report(db, tmp_path / "report.html").read_text("utf-8")).text
    assert "This is not a result yet: the final test has not been held." in text
    assert "validation questions accuracy went from" in text


async def test_an_opened_test_pool_is_told(tmp_path):
    db = await record_run(tmp_path, epochs=1, steps=1)
    with HarnessLog(db, "sim") as log:
        log.log_event("unsealed", {"reason": "compare v1 v2"})
    text = Page(write_report(db, tmp_path / "report.html").read_text("utf-8")).text
    assert "The test pool was opened 1 times before, on request." in text


def test_a_store_that_is_gone_costs_only_the_texts(recorded, tmp_path):
    html = write_report(recorded, tmp_path / "report.html", store_dir=tmp_path / "gone").read_text("utf-8")
    assert "The texts could not be read" in Page(html).text
    assert len([tag for tag, _ in Page(html).tags if tag == "img"]) == 5


async def test_whatever_data_and_models_wrote_stays_text(tmp_path):
    for name in ("skills", "prompts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "order.md").write_text("before\n", encoding="utf-8")
    init_store(tmp_path / "store", tmp_path / "skills", tmp_path / "prompts")
    (tmp_path / "skills" / "order.md").write_text(f"before\n{EVIL}\n", encoding="utf-8")
    advance_version(
        tmp_path / "store", "skills", tmp_path / "skills", VersionMeta(source="accept", parent="v1")
    )
    verdict = GateVerdict("CONTINUE", "undecided", 30, 10, 0, 2, 1, 3, 1, 0, 0.6, 0.05, probability=0.6)
    config = {"store_dir": str(tmp_path / "store"), "questions": EVIL, "agent": EVIL, "catalogue": EVIL}
    db = tmp_path / "harness.db"
    with HarnessLog(db, "new", git_sha=EVIL, config_snapshot=config) as log:
        for epoch, phase, version in [(0, "baseline", "v1"), (1, "R", "v2")]:
            versions = {"skills_version": version, "prompts_version": "v1"}
            scores = {"n": 10, "hard": 0.5, "soft": None, "mixed_weight": 0.5}
            await write_dual_metric(log, epoch=epoch, phase=phase, **versions, **scores)
        place = GatePlace(1, 0, EVIL, "0a1b2c3d")
        await write_gate_evidence(log, place, block=0, verdict=verdict, rollouts=20, cached=0)
        log.log_event("best_changed", {"run_id": "new_e1_R", "reason": EVIL}, epoch=1, target=EVIL)
        log.log_event(EVIL, {"anything": EVIL}, epoch=1)
    html = write_report(db, tmp_path / "report.html").read_text("utf-8")
    assert_stands_alone(html)
    assert " ".join(f"+{EVIL}".split()) in Page(html).text
    assert len([tag for tag, _ in Page(html).tags if tag == "img"]) == 5


def test_errors_name_what_is_wrong(recorded, tmp_path):
    with pytest.raises(LogError, match=r"none\.db"):
        write_report(tmp_path / "none.db", tmp_path / "report.html")
    with pytest.raises(ValueError, match="no training run 'other'; it has sim"):
        write_report(recorded, tmp_path / "report.html", run_id="other")
    with pytest.raises(StoreError, match=r"nowhere.report\.html"):
        write_report(recorded, tmp_path / "nowhere" / "report.html")


# A page that shows the report in frames of several widths, and says which of them can be scrolled sideways.
MEASURING = """<!DOCTYPE html><body><script>
const html = %s;
let left = %s.length;
for (const width of %s) {
  const frame = document.createElement("iframe");
  frame.style.width = width + "px";
  frame.style.border = 0;
  frame.onload = () => {
    const page = frame.contentDocument.documentElement;
    document.title += ` ${width}:${page.scrollWidth - page.clientWidth}`;
    if (--left === 0) document.title += " measured";
  };
  frame.srcdoc = html;
  document.body.append(frame);
}
</script>"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--dump-dom",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="no headless browser here")
@pytest.mark.slow
def test_nothing_sticks_out_on_a_narrow_or_a_wide_screen(tmp_path):
    db = asyncio.run(record_run(tmp_path, epochs=6, steps=3))
    with sqlite3.connect(db) as connection:  # a name as long as a name can be
        connection.execute(
            "UPDATE gate_evidence SET target_file = replace(target_file, 'order', ?)", ("order" * 20,)
        )
    html = write_report(db, tmp_path / "report.html").read_text("utf-8")
    widths = [400, 1280]
    literal = json.dumps(html).replace("</", "<\\/")
    (tmp_path / "measure.html").write_text(MEASURING % (literal, widths, widths), encoding="utf-8")
    page = (tmp_path / "measure.html").as_uri()
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={tmp_path / 'browser'}",
        "--virtual-time-budget=20000",
        page,
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", found)[1]
    assert title.endswith("measured")
    measured = dict(map(int, pair.split(":")) for pair in title.split()[:-1])
    assert measured == dict.fromkeys(widths, 0)
