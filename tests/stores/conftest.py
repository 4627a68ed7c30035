from __future__ import annotations

import pytest
from feature_arrays import Arrays, make_arrays


@pytest.fixture
def arrays() -> Arrays:
    return make_arrays()
