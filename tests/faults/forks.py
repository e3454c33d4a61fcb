"""A server that has imported everything and forks a memup command per request; the parent never computes.

Most of a small stage's time is importing torch. A request is one JSON line: arguments, folder, environment, where the
output goes. The child is the command line: main() with
its own sys.argv, working directory, standard streams and, if asked, the fault shim armed.
"""

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import traceback


def import_everything() -> None:
    import memup_cli

    skipped = ("two_colors",)
    for module in pkgutil.walk_packages(memup_cli.__path__, "memup_cli."):
        if not any(name in module.name for name in skipped):
            importlib.import_module(module.name)
    importlib.import_module("torch._dynamo")  # torch.load and the optimisers import it when they are first used


def be_command(request: dict) -> None:
    """In the child: never returns to the server."""
    os.chdir(request["folder"])
    for fd, name in ((1, request["out"]), (2, request["err"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
    os.environ.update(request["environment"])
    if "SHIM_ROOT" in request["environment"]:
        ctypes.CDLL(None).shim_start()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs in the background ignore it
    sys.argv = ["memup", *request["arguments"]]
    from memup_cli.__main__ import main

    code = 1
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    """A line that is a number waits for that child; any other starts one and answers its number."""
    import_everything()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    for line in sys.stdin:
        request = json.loads(line)
        if isinstance(request, int):
            _, status = os.waitpid(request, 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        child = os.fork()
        if child == 0:
            be_command(request)
        print(child, flush=True)


if __name__ == "__main__":
    serve()
