"""What a trace tells of a tool call."""

import json


def opened_nodes(tool_output: str) -> tuple[str, ...]:
    """The ids under `nodes` of a tool's JSON output, in their order: a node counts as opened when its text
    stood there. Output of other shapes opened none."""
    try:
        answer = json.loads(tool_output)
    except ValueError:
        return ()
    nodes = answer.get("nodes", []) if isinstance(answer, dict) else []
    return tuple(node["id"] for node in nodes if isinstance(node, dict) and "id" in node)
