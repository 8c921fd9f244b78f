"""Agents: the JSON action loop for chat models, the scoring agent, plugins, prompts and skills."""
