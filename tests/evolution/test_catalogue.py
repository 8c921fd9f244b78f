"""The proposers over a catalogue: what they may propose, how they rank, and that they are seeded."""

import dataclasses

import pytest
from case_packs import case, pack
from hypothesis import given
from hypothesis import strategies as st

from core.agent.skills import SkillError, SkillLine, parse_lines, render_line
from core.evolution.catalogue import CatalogueProposer, RandomProposer, load_catalogue, possible_edits
from core.evolution.edits import apply_edits, edit_key
from core.evolution.fit import BM25Fit, LineFit, Reach, ScorerFit, SourceReach
from core.evolution.protocols import ProposalError, Proposer
from core.evolution.types import RejectedEdit, SystemCasePack
from core.types import GeneratedQuestion

CATALOGUE = [
    SkillLine(
        "The question asks what comes directly after.",
        "search_next",
        (
            "What happens right after the baker drops the tray?",
            "The goat eats the hat. What follows?",
            "What follows the thunder?",
            "What is next?",
        ),
    ),
    SkillLine(
        "The question asks what came directly before.",
        "search_previous",
        (
            "What happens right before the kite falls?",
            "What preceded the storm?",
            "Just before the wedding, what?",
        ),
    ),
    SkillLine("The question asks how the film ends.", "first_moments", ("How does the film end?",)),
    SkillLine("The question asks for the price of tickets.", "read_all", ("What does a ticket cost?",)),
]
PLAIN = SkillLine("The question asks about the order of events.", "search_1", ("What comes when?",))
HEAD, TAIL = "---\nname: order\n---\n\nProse.\n\n## Where to look\n\n", "\n\n## Notes\n\nMore prose.\n"
SKILL = f"{HEAD}{render_line(PLAIN)}{TAIL}"
AFTER = [
    case("film-1-q1", "What happens right after the juggler trips?"),
    case("film-1-q2", "What follows the quarrel?"),
]
PACK = pack(AFTER)


async def reach_after(case_, tactic):
    """A world in which all failing cases need the moment after."""
    return {"search_next": 0.5, "read_all": 0.1}.get(tactic, 0.0)


def proposers():
    return [CatalogueProposer(CATALOGUE, fit=BM25Fit(), reach=reach_after), RandomProposer(CATALOGUE)]


def rejected(edit):
    return RejectedEdit("order.md", edit, "terminal", 1, 1, 0, 2)


def lines_after(edits, text=SKILL):
    outcome = apply_edits(text, edits, budget=len(edits))
    assert outcome.skipped == ()
    return parse_lines(outcome.text)


async def propose(proposer, *, text=SKILL, rejected=(), edit_budget=1, seed=0, case_pack=PACK):
    return await proposer.propose(case_pack, text=text, rejected=rejected, edit_budget=edit_budget, seed=seed)


def test_both_are_proposers_and_say_that_they_are_rule_based():
    for proposer in proposers():
        assert isinstance(proposer, Proposer)
        assert "rule-based" in proposer.name
        assert proposer.attempts == 1


def test_possible_edits_are_of_four_kinds_and_each_can_be_made():
    text = apply_edits(SKILL, [possible_edits(SKILL, CATALOGUE)[0].edit], budget=1).text
    kinds = {candidate.edit.reason for candidate in possible_edits(text, CATALOGUE)}
    assert kinds == {"adds a line", "gives a line an example", "swaps a line's tactic", "drops a line"}
    for candidate in possible_edits(text, CATALOGUE):
        outcome = apply_edits(text, [candidate.edit], budget=1)
        assert outcome.text == candidate.text
        assert tuple(parse_lines(outcome.text)) == candidate.lines != tuple(parse_lines(text))
        assert outcome.text.endswith(TAIL)


def test_a_line_is_added_with_three_examples_below_the_others():
    added = possible_edits(SKILL, CATALOGUE)[0]
    assert added.lines == (PLAIN, dataclasses.replace(CATALOGUE[0], examples=CATALOGUE[0].examples[:3]))


def test_a_swap_keeps_the_examples():
    swap = next(c for c in possible_edits(SKILL, CATALOGUE) if c.edit.reason == "swaps a line's tactic")
    assert swap.lines == (dataclasses.replace(PLAIN, tactic="first_moments"),)


def test_the_last_line_is_never_dropped():
    assert not any(candidate.edit.op == "delete" for candidate in possible_edits(SKILL, CATALOGUE))


def test_a_file_without_lines_gets_a_section():
    first = possible_edits("Prose only.\n", CATALOGUE)[0]
    assert [line.rule for line in first.lines] == [CATALOGUE[0].rule]


def test_windows_line_ends_are_no_obstacle():
    assert len(possible_edits(SKILL.replace("\n", "\r\n"), CATALOGUE)) == len(
        possible_edits(SKILL, CATALOGUE)
    )


def test_a_skill_whose_lines_cannot_be_read_is_a_proposal_error():
    with pytest.raises(ProposalError, match="unknown tactic"):
        possible_edits("## Where to look\n\n- Rule. -> guess\n", CATALOGUE)


async def test_the_best_four_reach_the_failing_cases_before_any_other_edit():
    proposer = CatalogueProposer(CATALOGUE, fit=BM25Fit(), reach=reach_after)
    drawn = {(await propose(proposer, seed=seed))[0] for seed in range(40)}
    assert 1 < len(drawn) <= 4
    for edit in drawn:
        tactics = {line.tactic for line in lines_after([edit])}
        assert tactics & {"search_next", "read_all"} or edit.reason.endswith("0 of 2 failing cases")
    helping = [edit for edit in drawn if edit.related_cases]
    assert {"search_next"} <= {line.tactic for edit in helping for line in lines_after([edit])}
    assert set(helping[0].related_cases) <= {sample.question_id for sample in AFTER}


async def test_without_reach_the_failing_questions_are_sent_elsewhere():
    proposer = CatalogueProposer(CATALOGUE, fit=BM25Fit())
    edits = await propose(proposer)
    assert lines_after(edits) != [PLAIN]
    assert len(edits) == 1
    assert edits[0].related_cases


@pytest.mark.parametrize("edit_budget", [2, 4])
@pytest.mark.parametrize("seed", range(6))
async def test_without_reach_no_edit_of_a_proposal_undoes_another(edit_budget, seed):
    proposer = CatalogueProposer(CATALOGUE, fit=BM25Fit())
    edits = await propose(proposer, edit_budget=edit_budget, seed=seed)
    texts = [apply_edits(SKILL, edits[:count], budget=edit_budget).text for count in range(len(edits) + 1)]
    assert len(set(texts)) == len(texts)
    swapped = [edit.target for edit in edits if edit.op == "replace"]
    contents = [edit.content for edit in edits if edit.op == "replace"]
    assert not set(swapped) & set(contents)


@pytest.mark.parametrize("proposer", proposers(), ids=lambda proposer: type(proposer).__name__)
async def test_the_same_arguments_give_the_same_edits(proposer):
    once = await propose(proposer, edit_budget=3, seed=7)
    assert once == await propose(proposer, edit_budget=3, seed=7)
    drawn = {tuple(await propose(proposer, seed=seed)) for seed in range(20)}
    assert len(drawn) > 1


@pytest.mark.parametrize("proposer", proposers(), ids=lambda proposer: type(proposer).__name__)
async def test_edits_stay_within_the_budget_and_can_all_be_applied(proposer):
    for seed in range(5):
        edits = await propose(proposer, edit_budget=3, seed=seed)
        assert 1 <= len(edits) <= 3
        assert lines_after(edits)


@pytest.mark.parametrize("proposer", proposers(), ids=lambda proposer: type(proposer).__name__)
async def test_rejected_edits_are_not_proposed_again_until_nothing_is_left(proposer):
    tried = []
    while edits := await propose(proposer, rejected=tried, seed=len(tried)):
        assert edit_key(edits[0]) not in {edit_key(entry.edit) for entry in tried}
        tried.append(rejected(edits[0]))
    assert len(tried) == len({edit_key(c.edit) for c in possible_edits(SKILL, CATALOGUE)})


@pytest.mark.parametrize("proposer", proposers(), ids=lambda proposer: type(proposer).__name__)
async def test_nothing_from_the_cases_is_proposed(proposer):
    leaking = pack(
        [case("film-1-q1", CATALOGUE[0].examples[0], ("A. a kite falls", "B. preceded the storm"))]
    )
    for seed in range(30):
        for edit in await propose(proposer, seed=seed, case_pack=leaking):
            assert "baker drops the tray" not in edit.content
            assert "preceded the storm" not in edit.content


@pytest.mark.parametrize("proposer", proposers(), ids=lambda proposer: type(proposer).__name__)
async def test_prompts_have_no_catalogue(proposer):
    system = SystemCasePack(stats={}, failure_cases=(), success_cases=())
    with pytest.raises(ProposalError, match="skill files"):
        await propose(proposer, case_pack=system)


async def test_a_pack_without_failures_still_gets_a_seeded_proposal():
    assert await propose(CatalogueProposer(CATALOGUE, fit=BM25Fit(), reach=reach_after), case_pack=pack([]))


async def test_bm25_fit_prefers_the_line_that_shares_words():
    fits = await BM25Fit()([*CATALOGUE, PLAIN], ["What happens right before the fair?", "zzz"])
    assert max(range(5), key=lambda line: fits[line][0]) == 1
    assert [values[1] for values in fits] == [0.0] * 5


async def test_bm25_fit_of_nothing_is_nothing():
    assert await BM25Fit()([], ["What?"]) == []
    assert await BM25Fit()([SkillLine("?!", "search_1")], ["What?"]) == [[0.0]]


class LengthScorer:
    """A scorer that finds long contexts likely; it keeps what it was asked."""

    model = "length"

    def __init__(self):
        self.asked = []

    async def score(self, context, continuations):
        self.asked.append((context, tuple(continuations)))
        return [float(len(context)) for _ in continuations]


async def test_scorer_fit_asks_as_the_scoring_agent_does():
    scorer = LengthScorer()
    fits = await ScorerFit(scorer)([PLAIN], ["One?", "Two?"])
    context = "The question asks about the order of events.\nQuestion: What comes when?\nQuestion:"
    assert scorer.asked == [(context, (" One?", " Two?"))]
    assert fits == [[float(len(context))] * 2]


def test_fits_and_reach_follow_their_protocols():
    assert isinstance(BM25Fit(), LineFit)
    assert isinstance(ScorerFit(LengthScorer()), LineFit)
    assert isinstance(SourceReach({}, lambda question: None), Reach)


class TwoHits:
    """Tools whose search finds `n1` first and `n2` second; counts calls."""

    calls = 0

    def describe(self):
        return ""

    async def __call__(self, name, args):
        TwoHits.calls += 1
        nodes = ", ".join(
            f'{{"id": "n{i}", "level": 3, "time_range": [{i}, {i + 1}], "card": "c", "subtitle": "", '
            f'"parent": null, "prev": null, "next": null}}'
            for i in range(1, args["k"] + 1)
        )
        return f'{{"nodes": [{nodes}]}}'


async def test_source_reach_is_the_share_to_the_point_and_zero_when_a_source_stays_closed():
    question = GeneratedQuestion("q1x", "v", "order", "What?", ("a", "b"), "A", source_nodes=("n2",))
    reach = SourceReach({"q1x": question}, lambda question: TwoHits())
    assert await reach(case("q1x", "What?"), "search_1") == 0.0
    assert await reach(case("q1x", "What?"), "search_2") == 0.5
    before = TwoHits.calls
    assert await reach(case("q1x", "What?"), "search_2") == 0.5
    assert TwoHits.calls == before
    assert await reach(case("unknown", "What?"), "search_2") == 0.0


def test_a_catalogue_is_read_from_a_file_with_byte_order_mark(tmp_path):
    path = tmp_path / "catalogue.md"
    body = "\n".join(render_line(line) for line in CATALOGUE)
    path.write_text(f"\ufeff## Where to look\r\n\r\n{body}\n", encoding="utf-8", newline="")
    assert load_catalogue(path) == CATALOGUE


def test_an_empty_catalogue_is_refused_by_name(tmp_path):
    path = tmp_path / "empty.md"
    path.write_text("# Nothing here\n", encoding="utf-8")
    with pytest.raises(SkillError, match=r"empty\.md"):
        load_catalogue(path)


@given(st.integers(0, 10**6))
async def test_random_proposals_always_leave_readable_lines(seed):
    text = SKILL
    for number in range(4):
        edits = await propose(RandomProposer(CATALOGUE), text=text, seed=seed + number)
        text = apply_edits(text, edits, budget=1).text
        assert parse_lines(text)
