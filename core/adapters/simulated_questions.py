"""The questions of a simulated world and the films they are about, worded by chance and marked as simulated.

Each question asks for the one thing that a moment of its film shows; that moment is its source node. The
other options are things that other moments of the same film show. The question's text names its cluster, so
that whoever proposes edits can know what failed together, as a reader of real questions would.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from core.adapters.simulated_chance import choose, shuffled
from core.adapters.simulated_model import Place
from core.adapters.simulated_rules import EVERY
from core.tree.model import EVENT, MOMENT, SCENE, VideoTree
from core.types import OPTION_LETTERS, GeneratedQuestion

OPTIONS = 4
FILLER_MOMENTS = 4
FEWEST_MOMENTS = 8
SCENES, EVENTS_IN_SCENE = 2, 2
SECONDS_PER_MOMENT = 10.0

_COLOURS = (
    "amber", "black", "blue", "brown", "copper", "cream", "crimson", "golden", "green", "grey", "ivory",
    "lilac", "ochre", "orange", "pink", "purple", "red", "silver", "striped", "spotted", "turquoise",
    "violet", "white", "yellow",
)  # fmt: skip
_THINGS = (
    "anchor", "apron", "barrel", "basket", "bell", "bicycle", "blanket", "bottle", "bucket", "candle",
    "carpet", "clock", "drum", "feather", "flute", "hammer", "helmet", "kettle", "ladder", "lantern",
    "mirror", "needle", "oar", "pillow", "pumpkin", "saddle", "shovel", "trumpet", "umbrella", "violin",
)  # fmt: skip
_PERSONS = (
    "baker", "barber", "beekeeper", "captain", "carpenter", "clerk", "cook", "doctor", "farmer",
    "ferryman", "fiddler", "gardener", "glazier", "hatter", "innkeeper", "judge", "mason", "miller",
    "nurse", "painter", "postman", "sailor", "shepherd", "tailor", "weaver", "widow",
)  # fmt: skip
_VERBS = (
    "carry", "drag", "drop", "find", "hide", "lift", "paint", "polish", "repair", "roll", "sell", "wrap",
)  # fmt: skip
_THIRD_PERSON = {"carry": "carries", "polish": "polishes"}
_WHERE = ("behind", "beside", "beyond", "in front of", "near", "opposite", "past", "under")
_QUALITIES = (
    "burnt", "crooked", "crowded", "deserted", "flooded", "frozen", "mossy", "narrow", "old", "ruined",
    "steep", "windy",
)  # fmt: skip
_PLACES = (
    "arch", "bakery", "barn", "bridge", "chapel", "cottage", "dam", "ferry", "fountain", "gate",
    "harbour", "inn", "lighthouse", "market", "mill", "orchard", "palace", "quarry", "school", "stable",
    "station", "tower",
)  # fmt: skip
MOST_QUESTIONS_OF_A_FILM = len(_COLOURS) * len(_THINGS) - FILLER_MOMENTS
_NAME = re.compile(r"[\w][\w -]*")


@dataclass(frozen=True, slots=True)
class Moment:
    """What one moment shows: a person does something with a thing somewhere."""

    person: str
    verb: str
    where: str
    thing: str

    @property
    def card(self) -> str:
        return f"The {self.person} {self._does} the {self.thing} {self.where}."

    @property
    def words(self) -> str:
        """What one would search for who does not know the thing yet."""
        return f"{self.person} {self._does} {self.where}"

    @property
    def asked(self) -> str:
        return f"what does the {self.person} {self.verb} {self.where}?"

    @property
    def _does(self) -> str:
        return _THIRD_PERSON.get(self.verb, f"{self.verb}s")


@dataclass(frozen=True, slots=True)
class Film:
    """A film's moments in film order by node id, and the node of each question by its row."""

    video_id: str
    moments: Mapping[str, Moment]
    sources: Mapping[int, str]

    def tree(self) -> VideoTree:
        """The film as a tree of scenes, events and moments of equal length."""
        ids = list(self.moments)
        nodes = {
            node_id: _node(MOMENT, number, number + 1, self.moments[node_id].card)
            for number, node_id in enumerate(ids)
        }
        for scene in range(SCENES):
            events = range(scene * EVENTS_IN_SCENE, (scene + 1) * EVENTS_IN_SCENE)
            bounds = [_share(len(ids), SCENES * EVENTS_IN_SCENE, event) for event in (*events, events.stop)]
            for event, start, end in zip(events, bounds, bounds[1:], strict=False):
                card = f"Event {event + 1} of a simulated film."
                nodes[f"e{event + 1}"] = _node(EVENT, start, end, card, ids[start:end])
            card = f"Scene {scene + 1} of a simulated film."
            children = [f"e{event + 1}" for event in events]
            nodes[f"s{scene + 1}"] = _node(SCENE, bounds[0], bounds[-1], card, children)
        duration = SECONDS_PER_MOMENT * len(ids)
        return VideoTree(videoID=self.video_id, duration_seconds=duration, domain="simulated", nodes=nodes)


def make_places(n_videos: int, n_questions: int, task_types: Sequence[str], clusters: int) -> list[Place]:
    """Where each question belongs: films in turn, task types in turn over films, clusters in turn within a
    type.

    Raises `ValueError` for numbers that make no world and for names that a rule could not name.
    """
    counts = {"n_videos": n_videos, "n_questions": n_questions, "clusters": clusters}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}: {count} is not positive")
    names = [
        *task_types,
        *(f"{task_type}-{number + 1}" for task_type in task_types for number in range(clusters)),
    ]
    if not task_types or len({EVERY, *names}) <= len(names) or not all(map(_NAME.fullmatch, names)):
        raise ValueError(
            f"task_types: {list(task_types)} must be distinct plain names, also of their clusters"
        )
    if -(-n_questions // n_videos) > MOST_QUESTIONS_OF_A_FILM:
        raise ValueError(f"n_videos: {n_questions} questions are more than {MOST_QUESTIONS_OF_A_FILM} a film")
    seen = dict.fromkeys(task_types, 0)
    places = []
    for row in range(n_questions):
        layer, video = divmod(row, n_videos)
        task_type = task_types[(layer + video) % len(task_types)]
        cluster = f"{task_type}-{seen[task_type] % clusters + 1}"
        seen[task_type] += 1
        places.append(Place(cluster, task_type, f"sim-film-{video + 1:02d}"))
    return places


def make_films(seed: int, places: Sequence[Place]) -> dict[str, Film]:
    """A film for every video of the places."""
    rows: dict[str, list[int]] = {}
    for row, place in enumerate(places):
        rows.setdefault(place.video_id, []).append(row)
    taken: set[tuple[str, str, str]] = set()
    return {video_id: _make_film(seed, video_id, members, taken) for video_id, members in rows.items()}


def question_id(row: int) -> str:
    """The id of the question in a row."""
    return f"sim-{row:04d}"


def make_question(seed: int, row: int, place: Place, difficulty: str, film: Film) -> GeneratedQuestion:
    """The question of one row; its answer stands in one moment of the film."""
    node_id = film.sources[row]
    moment = film.moments[node_id]
    others = [other.thing for other in film.moments.values() if other is not moment]
    things = [moment.thing, *shuffled(others, seed, "others", row)[: OPTIONS - 1]]
    options = shuffled([f"the {thing}" for thing in things], seed, "options", row)
    return GeneratedQuestion(
        question_id=question_id(row),
        video_id=place.video_id,
        task_type=place.task_type,
        question=f"Simulated {place.cluster} question: {moment.asked}",
        options=tuple(options),
        answer=OPTION_LETTERS[options.index(f"the {moment.thing}")],
        source_nodes=(node_id,),
        difficulty=difficulty,
    )


def _make_film(seed: int, video_id: str, rows: Sequence[int], taken: set[tuple[str, str, str]]) -> Film:
    count = max(FEWEST_MOMENTS, len(rows) + FILLER_MOMENTS)
    things = shuffled([" ".join(pair) for pair in product(_COLOURS, _THINGS)], seed, "things", video_id)
    ids = [f"m{number + 1:02d}" for number in range(count)]
    moments = {
        node_id: _make_moment(seed, f"{video_id} {node_id}", thing, taken)
        for node_id, thing in zip(ids, things, strict=False)
    }
    places = shuffled(ids, seed, "sources", video_id)
    return Film(video_id, moments, dict(zip(rows, places, strict=False)))


def _make_moment(seed: int, name: str, thing: str, taken: set[tuple[str, str, str]]) -> Moment:
    """A moment that no other of the world resembles but for its thing, so that every question is unique."""
    attempt = 0
    while True:
        where = " ".join(
            [
                choose(_WHERE, seed, name, attempt, "where"),
                "the",
                choose(_QUALITIES, seed, name, attempt, "quality"),
                choose(_PLACES, seed, name, attempt, "place"),
            ]
        )
        person = choose(_PERSONS, seed, name, attempt, "person")
        verb = choose(_VERBS, seed, name, attempt, "verb")
        if (person, verb, where) not in taken:
            taken.add((person, verb, where))
            return Moment(person, verb, where, thing)
        attempt += 1


def _share(total: int, parts: int, part: int) -> int:
    return total * part // parts


def _node(level: int, start: int, end: int, card: str, children: Sequence[str] = ()) -> dict:
    time_range = (start * SECONDS_PER_MOMENT, end * SECONDS_PER_MOMENT)
    return {"level": level, "time_range": time_range, "card": card, "children_ids": tuple(children)}
