"""The exit code of each kind of error, which users' scripts go by."""

import pytest

from memup_cli import errors
from stores import errors as store_errors

CODES = {
    errors.UsageProblem: 2,
    errors.StageMissing: 3,
    errors.BadInput: 65,
    store_errors.DamagedData: 65,
    store_errors.Incomplete: 65,
    store_errors.StoreIO: 74,
    PermissionError: 74,
    BrokenPipeError: 74,
    errors.Stopped: 75,
    errors.RankLost: 75,
    store_errors.Fenced: 75,
    store_errors.UnsafePath: 77,
    errors.Interrupted: 130,
    ZeroDivisionError: None,  # a bug
}


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=lambda value: getattr(value, "__name__", value))
def test_every_error_has_its_exit_code(kind, code):
    assert errors.exit_code(kind("what, where, what to do")) == code
