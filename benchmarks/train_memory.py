"""Memory training: updates per second, and what streaming from disk costs.

    python benchmarks/train_memory.py [--length 20000] [--updates 1000]

stream_ratio       updates per second of the streaming loop over those of the same loop fed with ready tensors
                   in RAM, both with the same model, data and threads
data_wait_share    of the streaming loop's time, spent waiting for the prefetch thread
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from collect import run_stage
from measure import show

from memup_cli.compute.adam import Adam
from memup_cli.compute.staging import Stager
from memup_cli.detector.detection import ScoreConfig
from memup_cli.learning.stretches import every_rollout
from memup_cli.learning.update import next_batch, optimiser_step, rollout_loss
from memup_cli.learning.weights import build_model
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.selection.candidates import TargetTables, gather_candidates, query_fields
from memup_cli.selection.choosing import chooser, stored_scores
from memup_cli.stages.scoring import score
from memup_cli.streaming.slabs import open_slab


def measure(run: Path, rollout: int, hidden: int, updates: int) -> dict[str, float]:
    options = TrainMemoryOptions(rollout=rollout, hidden=hidden)
    manifest = open_run(run)
    spec, train = spec_of(manifest), split_of(manifest, "train")
    torch.manual_seed(0)
    model = build_model(spec, options.model_dump(), int(train.lengths.max()))
    optimiser = Adam(model.parameters(), lr=1e-3)
    stager = Stager(torch.device("cpu"))
    tables = TargetTables(options.batch, options.targets, spec, query_fields(spec, "point", 1, 1))
    choose = chooser(stored_scores(run, "quantile"), options.targets, options.temperature, 0)
    sizes = {"batch": options.batch, "rollout": rollout, "gamma": 0.0, "seed": 0, "update": 0, "memory": 512 << 20}
    with open_slab(
        train,
        spec,
        **sizes,
        with_targets=False,
        choose=choose,
        gather=lambda top, *where: gather_candidates(top, spec, 0.0, "point", 1, *where),
        on_fresh=tables.put,
    ) as slab:
        state = model.memory.initial(options.batch)
        ready = []
        for update in range(20):
            ready.append(stager(next_batch(every_rollout(slab), slab, tables, options, 0, update)))
            slab.advance()
        for tensors in ready:  # the first updates make torch choose its kernels
            loss, state = rollout_loss(model, tensors, state)
            optimiser_step(model, optimiser, loss, options.lr, options.clip)
        streamed, in_ram = 0.0, 0.0
        waited = slab.wait_seconds
        for update in range(updates):  # in turns, one update each, so that a busy machine troubles both alike
            began = time.perf_counter()
            tensors = stager(next_batch(every_rollout(slab), slab, tables, options, 0, update))
            loss, state = rollout_loss(model, tensors, state)
            optimiser_step(model, optimiser, loss, options.lr, options.clip)
            slab.advance()
            turn = time.perf_counter()
            loss, state = rollout_loss(model, ready[update % len(ready)], state)
            optimiser_step(model, optimiser, loss, options.lr, options.clip)
            streamed, in_ram = streamed + turn - began, in_ram + time.perf_counter() - turn
        waited = slab.wait_seconds - waited
    return {
        "updates_per_second": round(updates / streamed, 1),
        "stream_ratio": round(in_ram / streamed, 3),
        "data_wait_share": round(waited / streamed, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=20000)
    parser.add_argument("--updates", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        run = Path(name) / "run"
        run_stage(str(run), options.length, 400, 10)
        score(run, ScoreConfig("quantile", 0.0, 1, 64, 1000, "nll", 0), torch.device("cpu"), restart=False, quiet=True)
        figures = {
            f"r={rollout} hidden={hidden}": measure(run, rollout, hidden, options.updates)
            for rollout in (1, 20)
            for hidden in (64, 256)
        }
    show(**figures)


if __name__ == "__main__":
    main()
