"""Trackers are extras: a command that lacks its package says how to get it, before anything is written."""

import pytest


@pytest.mark.parametrize("tracker", ["mlflow", "wandb", "trackio"])
def test_a_package_that_is_missing_is_named(memup, trained, tracker):
    (memup.folder / f"{tracker}.py").write_text(f"raise ImportError('No module named {tracker}')")
    env = {"PYTHONPATH": str(memup.folder)}
    failed = memup("export", tracker, "--run", "run", "--to", "there/it", code=2, env=env)
    assert f"pip install 'memup[{tracker}]'" in failed.err
    assert not (memup.folder / "there").exists()
