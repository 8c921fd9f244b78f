"""Everything the harness talks to: values, protocols, the agent, its world, and evolution.

`core` is plain Python and imports nothing from `harness`.
"""
