"""What the probe learns from: events with pasts that hold all that a running max needs."""

import numpy as np
import pytest
import torch

from memup_cli.models.probe import Probe
from memup_cli.training.pasts import sample_events
from memup_cli.training.stages import open_run, spec_of, split_of


@pytest.fixture
def small_maze(memup):
    memup("collect", "tmaze", "--length", 10, "--episodes", 30, "--test-episodes", 2, "--run", "run")
    manifest = open_run(memup.folder / "run")
    spec = spec_of(manifest)
    return spec, sample_events(split_of(manifest, "train"), spec, 0.0, 1, 0), split_of(manifest, "train")


def test_each_event_has_seen_its_own_past(small_maze):
    """All inputs up to the event, each once, and none from after it: the pooled past is that of the whole episode."""
    spec, events, train = small_maze
    torch.manual_seed(0)
    probe = Probe(spec, 1, 8)
    pooled = probe.pooled({name: torch.from_numpy(values) for name, values in events.past.items()})
    for number, episode in enumerate(train):
        previous = np.concatenate([[2], episode["action"][:-1].astype(np.int32)])
        whole = {"observation": episode["observation"], "previous_action": previous}
        running = probe.pooled({name: torch.from_numpy(values)[None] for name, values in whole.items()})[0]
        seen = events.seen[events.first[number] : events.first[number + 1]]
        assert len(seen) == len(episode["action"]), "so few steps are all kept"
        torch.testing.assert_close(pooled[number, seen], running[1:])
