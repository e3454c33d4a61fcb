"""A server that has imported everything and forks a memup command per request; the parent never computes.

Most of a small stage's time is importing torch. A request is one JSON line: what is wanted, of which child, and for a
new one its arguments, folder, environment and where the output goes. The child is the command line: main() with its
own sys.argv, working directory, standard streams, signals and, if asked, the fault shim armed.
"""

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import tempfile
import threading
import traceback

HANGS = 900  # seconds after which a command is taken for hanging, and tells where

# What stages import when they first need it.
LATE = (
    "torch.distributed",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "safetensors.torch",
    "safetensors.numpy",
    "zarr.storage",
    "PIL.Image",
    "PIL.GifImagePlugin",
    "multiprocessing.popen_spawn_posix",
    "multiprocessing.resource_tracker",
    "concurrent.futures.process",
)
_PR_SET_PDEATHSIG = 1


def import_everything() -> None:
    import memup_cli

    for module in pkgutil.walk_packages(memup_cli.__path__, "memup_cli."):
        importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)


def be_command(request: dict) -> None:
    """In the child: never returns to the server."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if request["group"]:
        os.setpgid(0, 0)
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for fd, name in ((1, request["out"]), (2, request["err"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    if "SHIM_ROOT" in os.environ:
        ctypes.CDLL(None).shim_start()
    faulthandler.dump_traceback_later(HANGS, exit=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs in the background ignore it
    tempfile.tempdir = None  # may have been found under other variables
    sys.path[:1] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["memup", *request["arguments"]]
    main = sys.modules["__main__"] = sys.modules["memup_cli.__main__"]  # what spawned workers take for the program

    code = 1
    try:
        main.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Children:
    """Commands that were started: each is waited for as often as somebody asks."""

    def __init__(self) -> None:
        self._codes: dict[int, int] = {}

    def start(self, request: dict) -> int:
        child = os.fork()
        if child == 0:
            be_command(request)
        self._codes.pop(child, None)  # an earlier one with the same number
        return child

    def wait(self, request: dict) -> int:
        """Its exit code."""
        pid = request["pid"]
        if pid not in self._codes:
            self._codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return self._codes[pid]

    def stopped(self, request: dict) -> int:
        """1 once it is stopped, 0 if it has ended instead."""
        pid = request["pid"]
        if pid in self._codes:
            return 0
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._codes[pid] = os.waitstatus_to_exitcode(status)
        return int(os.WIFSTOPPED(status))

    def unburied(self, request: dict) -> int:
        """Wait for its end, but leave it to be asked for its exit code."""
        os.waitid(os.P_PID, request["pid"], os.WEXITED | os.WNOWAIT)
        return 0


def serve() -> None:
    import_everything()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    children = Children()
    for line in sys.stdin:
        request = json.loads(line)
        print(getattr(children, request["wanted"])(request), flush=True)


if __name__ == "__main__":
    serve()
