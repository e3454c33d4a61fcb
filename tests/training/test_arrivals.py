"""Episodes that arrive, seen by a slow average of the model."""

import pytest

from memup_cli.errors import UsageProblem
from memup_cli.training.arrivals import Arrivals
from memup_cli.training.candidates import TargetTables, query_fields
from stores.slab import Slab
from tests.training.small import SPEC, model_of, sharp, stored


@pytest.mark.parametrize("rollout", [1, 3])
def test_pieces_of_episodes_are_not_enough(tmp_path, rollout):
    """Whatever the slots hold now: 11 steps come as 8 and 3, with room for one piece and a rollout."""
    options = sharp(scores="online")
    tables = TargetTables(2, 2, SPEC, query_fields(SPEC, "point", 2, 3))
    arrivals = Arrivals(model_of(options), 0, options, online=True)
    with Slab(stored(tmp_path), 2, rollout, 0, memory=2 * 12 * 15) as slab:
        assert not slab.whole
        with pytest.raises(UsageProblem, match="--scores online needs whole episodes"):
            arrivals.attach(slab, tables, resumed=False)
    with Slab(stored(tmp_path / "again"), 2, rollout, 0) as slab:
        assert slab.whole
        arrivals.attach(slab, tables, resumed=False)
