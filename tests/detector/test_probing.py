"""What the probe learns from: events with pasts that hold all that a running max needs."""

import numpy as np
import pytest
import torch

from memup_cli.detector.detection import ScoreConfig
from memup_cli.detector.fitting import Saving
from memup_cli.detector.network import Detector
from memup_cli.detector.pasts import sample_events
from memup_cli.detector.probe import Probe
from memup_cli.detector.probing import train_probe
from memup_cli.records.opening import open_run, spec_of, split_of


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


class StopsLater:
    """A stop flag that is raised after so many looks at it; one look or two an update."""

    def __init__(self, looks: float) -> None:
        self._left = looks

    def __bool__(self) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize("looks", [1, 101, 150])
def test_a_probe_that_is_stopped_in_the_middle_of_its_training_ends_with_the_same_weights(small_maze, tmp_path, looks):
    spec, events, _ = small_maze
    config = ScoreConfig("probe", gamma=0.0, window=1, hidden=8, updates=120, score="nll", seed=3)

    def train(folder, looks):
        torch.manual_seed(3)
        gain, probe = Detector(spec, "probe", 1, 8, "nll"), Probe(spec, 1, 8)
        saving = Saving(tmp_path / folder, "mark", StopsLater(looks), lambda: None)
        found = train_probe(gain, probe, events, config, torch.device("cpu"), saving, quiet=True)
        return found, {**gain.state_dict(), **{f"probe.{name}": values for name, values in probe.state_dict().items()}}

    whole, weights = train("whole", np.inf)
    stopped, _ = train("halves", looks)
    assert stopped is None
    resumed, again = train("halves", np.inf)
    assert resumed == whole
    assert whole["probe_updates"] == 120
    for name, values in weights.items():
        assert torch.equal(again[name], values), name
