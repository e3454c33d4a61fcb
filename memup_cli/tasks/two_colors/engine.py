"""Doom engines that never outlive the process that plays with them.

ViZDoom runs each game as a process of its own, which ignores that its player was killed, writes files into the working
directory, and leaves others in /dev/shm. So a game starts through a small script: it asks the kernel to be killed with
its parent, leaves the process group that Ctrl-C goes to, and works in a temporary folder. What a killed player left in
the end is swept when the next one starts.
"""

import fcntl
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BadInput
from .scenario import WAD

if TYPE_CHECKING:
    import vizdoom

SHARED_MEMORY = Path("/dev/shm")
SHARED_NAMES = "ViZDoom*"
FOLDER = "memup-doom-"
# Arguments: the parent's process id, the folder to work in, the engine and its arguments.
LAUNCHER = """
import ctypes, os, signal, sys
parent, folder, engine = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != parent:
    os._exit(1)
os.setpgid(0, 0)
os.chdir(folder)
os.execv(engine, sys.argv[3:])
"""


class Engine:
    """A started game and its folder; closed with close(), at the latest when it is forgotten or its process ends."""

    def __init__(self, tics: int, living_reward: float, objects: bool) -> None:
        self.game = _configured(tics, living_reward, objects)
        sweep()
        self._folder, lock = _folder()
        # Worker processes leave without what weakref or atexit would do then.
        self._finish = Finalize(self, _close, (self.game, self._folder, lock), exitpriority=0)
        launcher = self._folder / "start"
        engine = Path(self.game.get_doom_game_path()).with_name("vizdoom")
        command = [sys.executable, "-ISc", LAUNCHER, str(os.getpid()), str(self._folder), str(engine)]
        launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        launcher.chmod(0o700)
        self.game.set_vizdoom_path(str(launcher))
        self.game.set_doom_config_path(str(self._folder / "engine.ini"))

    def begin(self, doom_map: str, seed: int) -> None:
        """A new episode; the first one starts the engine."""
        self.game.set_doom_map(doom_map)
        self.game.set_seed(seed)
        if self.game.is_running():
            self.game.new_episode()
            return
        try:
            with _starting(exclusive=False), _own_signals():
                self.game.init()
        except Exception as error:  # ViZDoom has many; all of them mean that there is no game
            raise BadInput(
                f"the Doom engine does not start: {error}. It needs Linux, /dev/shm and a writable TMPDIR."
            ) from error

    def close(self) -> None:
        self._finish()


def _configured(tics: int, living_reward: float, objects: bool) -> "vizdoom.DoomGame":
    import vizdoom
    from vizdoom import Button

    game = vizdoom.DoomGame()
    game.set_doom_game_path(str(Path(vizdoom.install_path) / "freedoom2.wad"))
    game.set_doom_scenario_path(str(WAD))
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_window_visible(False)
    game.set_sound_enabled(False)
    game.set_console_enabled(False)
    for part in ("hud", "crosshair", "weapon", "decals", "particles", "messages", "corpses", "effects_sprites"):
        getattr(game, f"set_render_{part}")(False)
    game.set_render_screen_flashes(False)  # they would tell healing from hurting
    game.set_available_buttons([Button.TURN_LEFT, Button.TURN_RIGHT, Button.MOVE_FORWARD, Button.MOVE_BACKWARD])
    game.set_available_game_variables([])
    game.set_objects_info_enabled(objects)
    game.set_episode_timeout(tics)
    game.set_episode_start_time(1)
    game.set_living_reward(living_reward)
    game.set_item_reward(1.0)
    game.set_secret_reward(-1.0)
    game.add_game_args("+cl_showsecretmessage 0")
    game.set_mode(vizdoom.Mode.PLAYER)
    return game


def _close(game: "vizdoom.DoomGame", folder: Path, lock: int) -> None:
    game.close()
    os.close(lock)
    shutil.rmtree(folder, ignore_errors=True)


def _folder() -> tuple[Path, int]:
    """A new folder, locked for as long as this process lives."""
    with _starting(exclusive=False):
        folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
    return folder, lock


@contextmanager
def _own_signals() -> Iterator[None]:
    """ViZDoom takes signals for itself and then fails in the middle of a game: they stay with who has them."""
    ours = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # others cannot
            for number, handler in ours.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _starting(exclusive: bool) -> Iterator[None]:
    """Games start side by side, but never while somebody sweeps: what has just been made looks like a leftover."""
    fd = os.open(SHARED_MEMORY, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def sweep() -> None:
    """Remove the folders and the shared memory of this user's games whose players are dead."""
    with _starting(exclusive=True):
        for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/"):
            if _is_ours(folder) and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
        left = [path for path in SHARED_MEMORY.glob(SHARED_NAMES) if _is_ours(path)]
        used = _mapped_files() if left else set()
        for path in left:
            if str(path) not in used:
                path.unlink(missing_ok=True)


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid() and not path.is_symlink()
    except FileNotFoundError:
        return False


def _is_abandoned(folder: Path) -> bool:
    """Whether nobody holds its lock any more; the kernel gives up the locks of the dead."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _mapped_files() -> set[str]:
    """Files in shared memory that some process of this user has mapped."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has just ended, or is not ours
            for line in maps.read_text().splitlines():
                if str(SHARED_MEMORY) in line:
                    found.add(line.split(maxsplit=5)[5])
    return found
