"""memup doctor tells what would go wrong, with the exit code a script can act on, and leaves nothing behind."""

import os

import pytest

from memup_cli.health.folder import check_kind
from tests.faults.mounts import mounted, read_only
from tests.processes import Outcome


def levels(outcome: Outcome) -> dict[str, str]:
    return {check["name"]: check["level"] for check in outcome.json["checks"]}


def found(outcome: Outcome, name: str) -> dict:
    return next(check for check in outcome.json["checks"] if check["name"] == name)


@pytest.fixture
def instead(memup):
    """Puts a package of this name before the real one; the variables under which that holds."""

    def replace(name: str, code: str) -> dict[str, str]:
        package = memup.folder / "packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(code)
        return {"PYTHONPATH": str(package.parent)}

    return replace


def test_a_healthy_machine_is_told_so_and_left_as_it_was(memup):
    (memup.folder / "tmp").mkdir()
    shown = memup("doctor", "--json", env={"TMPDIR": str(memup.folder / "tmp"), "SLURM_JOB_ID": "71"})
    assert shown.json["ok"]
    assert "problem" not in levels(shown).values()
    assert {"packages", "devices", "cores", "RAM", "file system", "space", "writing", "locks"} <= set(levels(shown))
    assert found(shown, "Doom engine")["data"]["seconds"] > 0
    assert found(shown, "packages")["data"]["zarr"]
    assert found(shown, "extras")["found"].startswith("arrays, doom, film, minari, mlflow, plots, remote, tensorboard")
    assert found(shown, "writing")["data"]["bytes_per_second"] > 0
    assert found(shown, "batch queue")["data"]["job"] == "71"
    assert found(shown, "cores")["data"]["usable"] <= len(os.sched_getaffinity(0))
    assert [str(p.relative_to(memup.folder)) for p in memup.folder.rglob("*")] == ["tmp"]


def test_quick_leaves_out_what_takes_seconds(memup):
    shown = memup("doctor", "--quick", "--json")
    assert "Doom engine" not in levels(shown)
    assert "bytes_per_second" not in found(shown, "writing")["data"]
    assert "memup can run here" in memup("doctor", "--quick").out


def test_a_folder_that_does_not_exist_is_judged_by_the_one_above_it(memup):
    shown = memup("doctor", "--quick", "--json", "--run", "later/on")
    assert found(shown, "file system")["data"]["folder"] == str(memup.folder)
    assert list(memup.folder.iterdir()) == []


def test_a_read_only_folder_is_a_problem(memup):
    (memup.folder / "runs").mkdir()
    with read_only(memup.folder / "runs"):
        shown = memup("doctor", "--quick", "--json", code=74)
        assert not shown.json["ok"]
        assert "read-only" in found(shown, "folder")["found"]
        assert "memup cannot run here" in memup("doctor", "--quick", code=74).out


def test_a_file_where_the_runs_should_go_is_a_problem(memup):
    (memup.folder / "runs").write_text("")
    assert "not a folder" in found(memup("doctor", "--quick", "--json", code=74), "folder")["found"]


def test_a_folder_in_ram_and_a_small_disk_are_worth_a_note(memup):
    with mounted(memup.folder / "runs", "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        shown = memup("doctor", "--quick", "--json")
        assert levels(shown)["file system"] == levels(shown)["space"] == "note"
        full = memup("doctor", "--json", code=74)  # the pieces of the speed test do not fit
        assert "No space left" in found(full, "folder")["found"]
        assert list((memup.folder / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "level"), [("ext4", "ok"), ("xfs", "ok"), ("nfs4", "note"), ("overlay", "note"), ("fuse.beegfs", "note")]
)
def test_the_kind_of_file_system_comes_from_the_mount_nearest_to_the_folder(tmp_path, kind, level):
    (tmp_path / "a b").mkdir()
    lines = [
        "22 1 8:1 / / rw - tmpfs none rw",
        f"23 22 8:2 / {tmp_path}/a\\040b rw,relatime shared:1 - {kind} server:/home rw",
        f"24 22 8:3 / {tmp_path}/a rw - vfat none rw",
    ]
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    check = check_kind(tmp_path / "a b", tmp_path / "mountinfo")
    assert (check.data["kind"], check.level, bool(check.advice)) == (kind, level, level == "note")


def test_without_the_doom_engine_all_else_can_run(memup, instead):
    shown = memup(
        "doctor", "--json", env=instead("vizdoom", "raise ImportError('no libSDL here')"), new_interpreter=True
    )
    assert "no libSDL here" in found(shown, "Doom engine")["found"]
    assert "two-colors" in found(shown, "Doom engine")["advice"]
    assert levels(shown)["Doom engine"] == "note"


def test_a_package_that_does_not_load_is_a_problem(memup, instead):
    broken = instead("zarr", "raise OSError('bad wheel')")
    shown = memup("doctor", "--quick", "--json", env=broken, code=1, new_interpreter=True)
    assert "bad wheel" in found(shown, "zarr")["found"]
    assert "Install memup again" in found(shown, "zarr")["advice"]


def test_a_run_at_a_url_is_refused(memup):
    assert "can only be read" in memup("doctor", "--run", "https://example.org/runs", code=2).err
