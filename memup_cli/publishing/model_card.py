"""README.md of a model folder: what it is, of what task, how it was trained, what it reached, how it is loaded."""

import re
import shlex
from typing import Any

from stores.manifest import Manifest

from ..options.common import STAGES
from ..records.opening import spec_of
from ..records.runs import again
from ..registries import AGENTS
from ..reports.text import shown_interval, shown_value, table, text
from ..tasks.spec import PREVIOUS_ACTION

CARD = """---
library_name: memup
tags:
{tags}
---

# {name}

A recurrent memory for very long sequences, trained by [MemUP](https://arxiv.org/abs/2207.13649) with memup {version}.
The memory reads a sequence step by step. From its state, a predictor tells the outcomes of uncertain steps far ahead.
{agents}
| file | what it holds |
|---|---|
{files}

## Task

{task}

{fields}

## Training

{course} The last command of each stage was:

```sh
{commands}
```

All options are in `config.json`.

## Figures

{figures}

## Use

Install memup. Download this folder with any client of your hub, and load it from there. Nothing in it is run.

```python
{use}
```

## Licence

Not stated yet. Whoever publishes this folder chooses one: write it here, and as `license:` at the top.
"""

ENVIRONMENT = """import memup_cli

memory = memup_cli.load_memory("FOLDER")
m, state = memory.step(observations, None, memory.initial(len(observations)))  # the first step of each episode"""
AGENT = """
agent = memup_cli.load_agent("FOLDER", "{agent}")
agent.begin(seed=0)
action = agent.act(observation, greedy=True)  # once per step; it feeds its actions back by itself"""
MODULE = """from memup_cli.agents.published import read_memory

model, spec = read_memory("FOLDER")  # a torch module: model.memory, model.predictor; and the task's fields"""


def card(found: dict[str, Any], agents: list[str], manifest: Manifest) -> str:
    """The page. Words of the run are made plain, so that nothing in them can end a block or become a link."""
    spec = spec_of(manifest)
    acting = "reward" in {field.name for field in spec.fields}
    files = [("model.safetensors", "the memory and its predictor")]
    files += [(f"{agent}.safetensors", _acts(agent)) for agent in agents]
    files += [("config.json", "the task, and the options of all networks")]
    options = {name: value for name, value in found["task"]["options"].items() if value is not None}
    said = ", ".join(f"{name} {value}" for name, value in options.items())
    rows = [(f.name, f.dtype, " x ".join(map(str, f.shape)) or "one number", _role(f.name, spec)) for f in spec.fields]
    plain = set(spec.memory_input) <= {"observation", PREVIOUS_ACTION}
    use = ENVIRONMENT + "".join(AGENT.format(agent=agent) for agent in agents) if plain else MODULE
    return CARD.format(
        tags="\n".join(f"- {tag}" for tag in ("memup", "memory", *(["reinforcement-learning"] if acting else []))),
        name=text(found["name"]),
        version=text(next(s for s in found["stages"] if s["name"] == "train-memory")["versions"].get("memup", "")),
        agents=f"With it {'comes an agent' if len(agents) == 1 else 'come agents'}.\n" if agents else "",
        files="\n".join(f"| `{name}` | {what} |" for name, what in files),
        task=text(f"{found['task']['name']}: {said}" if said else found["task"]["name"]),
        fields="\n".join(table(("field", "type", "shape", "what it is to the memory"), rows)),
        course=_course(found),
        commands="\n".join(_commands(found, manifest)),
        figures=_figures(found),
        use=use,
    )


def _acts(agent: str) -> str:
    alone = "that remembers by itself, without this memory"
    return f"an agent, {agent}, {'that acts on the state of the memory' if AGENTS.entry(agent).on_memory else alone}"


def _role(name: str, spec: Any) -> str:
    roles = [("it is read", name in spec.memory_input), ("it is known of a target step", name in spec.query)]
    roles += [("it is predicted", name == spec.target)]
    return ", ".join(role for role, holds in roles if holds)


def _course(found: dict[str, Any]) -> str:
    stages = {stage["name"]: stage for stage in found["stages"]}
    collected, trained = stages["collect"]["config"], stages["train-memory"]
    done = trained["done"]
    return (
        f"On {collected['episodes']:,} episodes, for {f'{done:,}' if done else 'an unknown number of'} updates, seed "
        f"{trained['config'].get('seed')}."
    )


def _commands(found: dict[str, Any], manifest: Manifest) -> list[str]:
    """As they were given, but for the place of the run; on one line each."""
    stages = sorted(manifest.stages, key=lambda stage: (STAGES.index(stage.partition("/")[0]), stage))
    place = f"runs/{re.sub(r'[^A-Za-z0-9._-]', '_', found['name'])}"
    lines = []
    for stage in stages:
        words = shlex.split(again(manifest, stage, restart=False))
        words[words.index("--run") + 1] = place
        lines.append(re.sub(r"[\s`]+", " ", shlex.join(words)))
    return lines


def _figures(found: dict[str, Any]) -> str:
    if not found["figures"]:
        return "It was not evaluated."
    rows = [(f["label"], shown_value(f), shown_interval(f), f["note"]) for f in found["figures"]]
    return "\n".join(table(("figure", "value", "95% interval", "over"), rows))
