"""What a configuration names, built and used through the command line: endpoints, the embedded model."""

import asyncio
import contextlib
import dataclasses
import json
import sys
from pathlib import Path

import pytest
from cli_runs import HARNESS, data_flags, environment, query, run, write_data
from served_runs import serving, variables

from core.adapters.simulated import SimulatedWorld
from core.agent.prompts import DEFAULT_PROMPTS_DIR
from harness.budget import spent_by
from harness.config import RunConfig
from harness.from_config import Services, environment_of
from harness.inference import make_briefer
from harness.log import HarnessLog
from harness.rollout import PromptTexts

for name in ("adapters", "core"):
    sys.path.append(str(Path(__file__).parents[1] / name))

from fault_server import KEY, MODEL, FaultServer  # noqa: E402
from tiny_llama import write_tiny_gguf  # noqa: E402

CONCURRENCY = 8
TRAIN = ["train", "--config", "harness.yaml"]
SMALL = [
    *("--epochs", "1", "--run-id", "real", "--batch-size", "16", "--min-class", "2"),
    *("--concurrency", str(CONCURRENCY)),
    *(
        "--test-size",
        "12",
        "--val-size",
        "16",
        "--momentum-samples",
        "4",
        "--evolve-targets",
        "skills+system",
    ),
]


def make_world() -> SimulatedWorld:
    return SimulatedWorld(4, n_videos=12, n_questions=72, task_types=("order", "content"))


@pytest.fixture
def folder(tmp_path):
    """Data of the world, initialised from the command line."""
    return initialised(tmp_path / "experiment")


def initialised(folder: Path, *flags: str) -> Path:
    write_data(folder, make_world())
    arguments = ["init", ".", *data_flags(folder), "--skills", "skills", *SMALL, *flags]
    made = run(arguments, cwd=folder, program=HARNESS)
    assert made.returncode == 0, made.stderr
    return folder


async def command(arguments, *, cwd, **named: str) -> tuple[int, str, str]:
    """A command beside servers that run in this process: its exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *HARNESS,
        *arguments,
        cwd=cwd,
        env=environment(**named),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, complaint = await process.communicate()
    return process.returncode, told.decode(), complaint.decode()


async def test_whole_training_run_through_the_real_client(folder):
    world = make_world()
    async with serving(world) as running:
        named = variables(running)
        train = [*TRAIN, "--json", "--prices", f"{{{MODEL}: [1.0, 2.0]}}"]
        code, told, complaint = await command(train, cwd=folder, **named)
        assert code == 0, complaint
        assert json.loads(told)["status"] == "completed"
        calls = {name: len(server.calls) for name, server in running.items()}
        assert all(calls.values()), calls
        again, _, complaint = await command([*train, "--resume"], cwd=folder, **named)
        assert again == 0, complaint
        assert {name: len(server.calls) for name, server in running.items()} == calls

    db_path = folder / "workspace" / "harness.db"
    roles = dict(query(db_path, "SELECT role, count(*) FROM llm_calls WHERE run_id = 'real' GROUP BY role"))
    assert roles == {"agent": calls["AGENT"], "judge": calls["JUDGE"], "evolver": calls["EVOLVE"]}
    assert query(db_path, "SELECT count(*) FROM llm_calls WHERE cost IS NULL") == [(0,)]
    assert query(db_path, "SELECT count(*) FROM gate_evidence")[0][0] > 0
    assert query(db_path, "SELECT count(*) FROM predictions WHERE stop_reason = 'error'") == [(0,)]
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert KEY.encode() not in path.read_bytes(), path


async def test_a_killed_run_repeats_no_call_but_those_in_flight_and_ends_the_same(tmp_path):
    whole, killed = (initialised(tmp_path / name) for name in ("whole", "killed"))
    async with serving(make_world()) as running:
        named = variables(running)

        def made_so_far() -> int:
            return sum(len(server.calls) for server in running.values())

        code, _, complaint = await command(TRAIN, cwd=whole, **named)
        assert code == 0, complaint
        needed = made_so_far()
        for server in running.values():
            server.delay_s = 0.02
        process = await asyncio.create_subprocess_exec(
            *HARNESS, *TRAIN, cwd=killed, env=environment(**named), stderr=asyncio.subprocess.DEVNULL
        )
        while made_so_far() < 1.5 * needed:
            assert process.returncode is None
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        code, _, complaint = await command([*TRAIN, "--resume"], cwd=killed, **named)
        assert code == 0, complaint
        assert needed <= made_so_far() - needed <= needed + CONCURRENCY
    assert skill_texts(killed) == skill_texts(whole)


def skill_texts(folder: Path) -> dict[str, str]:
    """The skills in force, by file name."""
    version = json.loads((folder / "workspace" / "manifest.json").read_text("utf-8"))["current"]["skills"]
    paths = (folder / "store" / "skills" / version).glob("*.md")
    return {path.name: path.read_text("utf-8") for path in paths}


async def test_a_wrong_key_ends_with_1_and_the_words_of_the_provider(folder):
    wrong = "sk-wrong-9876543210fedcba"
    async with FaultServer() as server:
        named = variables({"AGENT": server, "EVOLVE": server}, AGENT_LLM_API_KEY=wrong)
        code, told, complaint = await command(TRAIN, cwd=folder, **named)
    assert (code, told) == (1, "")
    assert "Incorrect API key provided" in complaint
    assert wrong not in complaint
    assert "Traceback" not in complaint
    assert len(server.calls) <= 3


@pytest.mark.parametrize(("targets", "calls"), [("skills+system", 0), ("skills+tools", 2)])
async def test_tools_condense_what_they_find_only_when_their_prompts_are_trained(tmp_path, targets, calls):
    folder, world = write_data(tmp_path / "data", make_world()), make_world()
    config = RunConfig(trees_dir=str(folder / "trees"), evolve_targets=targets)
    async with FaultServer() as server, opened_films(tmp_path, config, server) as films:
        tools = films.tools_for(world.questions[0])
        await tools("view_node", LOOK)
    assert len(server.calls) == calls
    assert "observe_frame" in tools.describe()


LOOK = {"node_id": "root", "question": "What is there?"}


@contextlib.asynccontextmanager
async def opened_films(folder, config, server):
    """The films of a configuration whose models are all one server, while a run is open."""
    services = Services(
        dataclasses.replace(config, workspace_dir=str(folder)), variables({"AGENT": server, "VL": server})
    )
    with HarnessLog(folder / "harness.db", "real", synchronous="NORMAL") as log:
        environment = environment_of(services)  # first: its models are opened and closed with the others
        async with services.opened(log):
            yield environment


async def test_what_tools_ask_is_paid_once_for_each_rollout_and_counts_as_spent(tmp_path):
    folder, world = write_data(tmp_path / "data", make_world()), make_world()
    config = RunConfig(trees_dir=str(folder / "trees"))
    async with FaultServer() as server:
        async with opened_films(tmp_path, config, server) as films:
            for scope, calls in (("real_e1_s0/q", 2), ("real_e1_s0/q", 2), ("real_e1_s1/q", 4)):
                await films.tools_for(world.questions[0]).for_scope(scope)("view_node", LOOK)
                assert len(server.calls) == calls
            tokens = "sum(prompt_tokens + completion_tokens)"
        found = query(
            tmp_path / "harness.db", f"SELECT role, scope, {tokens} FROM llm_calls GROUP BY role, scope"
        )
        assert [(role, scope) for role, scope, _ in found] == [
            ("tool", "real_e1_s0/q"),
            ("tool", "real_e1_s1/q"),
        ]
        with HarnessLog(tmp_path / "harness.db", "real") as log:
            assert spent_by(log).tokens == sum(count for _, _, count in found) > 0


class CandidatePrompts:
    """All the prompts that there are, or those named, with a text of the candidate's."""

    def __init__(self, *names):
        self.names = names or tuple(path.name for path in DEFAULT_PROMPTS_DIR.glob("*.md"))

    def list(self):
        return list(self.names)

    def read(self, name):
        return f"The candidate's {name}"


async def test_tools_condense_by_the_prompts_that_are_on_trial(tmp_path):
    folder, world = write_data(tmp_path / "data", make_world()), make_world()
    config = RunConfig(trees_dir=str(folder / "trees"))
    async with FaultServer() as server, opened_films(tmp_path, config, server) as films:
        briefer = make_briefer(
            NoSkills(), CandidatePrompts(), agent=world.agent(), max_steps=9, skill_mode="none", grader=None
        )
        await briefer.tools(films.tools_for(world.questions[0]))("view_node", LOOK)
    assert [call.body["messages"][0]["content"] for call in server.calls] == [
        "The candidate's view_node_extract.md",
        "The candidate's view_node_verify.md",
    ]


async def test_a_prompt_that_tools_need_is_missed_before_anything_is_paid(tmp_path):
    folder, world = write_data(tmp_path / "data", make_world()), make_world()
    config = RunConfig(trees_dir=str(folder / "trees"))
    async with FaultServer() as server, opened_films(tmp_path, config, server) as films:
        tools, prompts = films.tools_for(world.questions[0]), CandidatePrompts("system.md", "protocol.md")
        with pytest.raises(ValueError, match=r"no prompt view_node_extract\.md; there are protocol, system"):
            tools.with_prompts(PromptTexts(prompts))


class NoSkills:
    def list(self):
        return []


def test_missing_variables_are_named_before_anything_is_made(folder):
    told = run(TRAIN, cwd=folder, program=HARNESS)
    assert told.returncode == 2
    for role in ("AGENT_LLM", "EVOLVE_LLM"):
        assert f"not set: {role}_MODEL, {role}_BASE_URL, {role}_API_KEY" in told.stderr
    assert not (folder / "workspace").exists()


def test_keys_may_stand_in_a_dotenv_file_and_nobody_shows_them(folder):
    (folder / ".env").write_text(f"AGENT_LLM_API_KEY={KEY}\nAGENT_LLM_MODEL=m\n", encoding="utf-8")
    told = run(TRAIN, cwd=folder, program=HARNESS)
    assert told.returncode == 2
    assert "not set: AGENT_LLM_BASE_URL." in told.stderr
    assert KEY not in told.stderr


def test_the_embedded_model_with_a_catalogue_trains_without_any_endpoint(tmp_path):
    folder = write_data(tmp_path / "experiment", make_world())
    model = write_tiny_gguf(folder / "tiny.gguf")
    lines = ["order", "content"]
    for name in lines:
        text = (folder / "skills" / f"{name}.md").read_text("utf-8")
        line = f"## Where to look\n\n- The question is about {name}. -> search_1\n"
        (folder / "skills" / f"{name}.md").write_text(f"{text}\n{line}", encoding="utf-8")
    catalogue = [
        f"- The question says {name}. -> first_moments\n  - What is {name}?" for name in ("red", "blue")
    ]
    (folder / "catalogue.md").write_text("## Where to look\n\n" + "\n".join(catalogue), encoding="utf-8")
    local = ["--agent", "local", "--model-path", str(model), "--workers", "1", "--proposer", "catalogue"]
    local += ["--catalogue", "catalogue.md", "--evolve-targets", "skills", "--no-momentum"]
    made = run(
        ["init", ".", *data_flags(folder), "--skills", "skills", *SMALL, *local], cwd=folder, program=HARNESS
    )
    assert made.returncode == 0, made.stderr
    # An empty cache and no package index: the model can only be the one that the flag names.
    own_cache = {"XDG_CACHE_HOME": str(folder / "cache"), "PIP_NO_INDEX": "1", "JUDGE_LLM_MODEL": "unasked"}
    told = run([*TRAIN, "--json"], cwd=folder, program=HARNESS, variables=own_cache)
    assert told.returncode == 0, told.stderr
    db_path = folder / "workspace" / "harness.db"
    assert query(db_path, "SELECT count(DISTINCT agent_fingerprint) FROM predictions") == [(1,)]
    assert query(db_path, "SELECT count(*) FROM predictions WHERE stop_reason = 'error'") == [(0,)]
    assert query(db_path, "SELECT count(*) FROM llm_calls") == [(0,)]
