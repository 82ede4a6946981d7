"""How each agent deals with what is asked: by itself, with our help, or not at all. Pure.

What an agent has no words for is either held by steno, or refused before anything is started; nothing is ignored.
"""

import msgspec

from .values import Agent, LaunchOptions

# The fields of an Ask that people fill, by the names of their options.
OPTION_FIELDS = {
    "model": "model", "session_id": "session_id", "resume": "resume", "fork": "fork", "continue_": "continue_",
    "max_turns": "max_turns", "max_cost": "max_cost", "permission_mode": "permission_mode", "allow": "allow", "deny": "deny",
    "system_prompt": "system_prompt", "add_dir": "add_dirs", "mcp_config": "mcp_config", "json_schema": "json_schema",
    "fallback_model": "fallback_model", "steer": "steer",
}  # fmt: skip
# What steno holds where the agent does not: it watches the cost, checks the answer, and starts again with another model.
EMULATED_OPTIONS = ("max_cost", "json_schema", "fallback_model")
SCHEMA_PROMPT_TEMPLATE = (
    "{prompt}\n\nYour final answer must be one JSON value that fits this JSON schema, and nothing else: no explanation, no "
    "code fence.\n{schema}"
)


def option_support(agent: Agent, option: str) -> str:
    """`agent`: it takes the option itself; `steno`: steno holds it; `no`: a run with it is refused."""
    if OPTION_FIELDS[option] not in agent.unsupported_options:
        return "agent"
    return "steno" if option in EMULATED_OPTIONS else "no"


def add_schema_prompt(agent: Agent, ask: LaunchOptions, version: str | None) -> LaunchOptions:
    """What is asked, with the schema in the prompt where the agent has no way of its own for it."""
    if ask.json_schema is None or agent.supports_schema(msgspec.json.decode(ask.json_schema), version):
        return ask
    prompt = SCHEMA_PROMPT_TEMPLATE.format(prompt=ask.prompt, schema=ask.json_schema)
    return msgspec.structs.replace(ask, prompt=prompt, json_schema=None)
