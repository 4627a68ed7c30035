"""Cached kernels must be compiled anew when a kernel that they call was changed in another file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import reid_dist

_FIRST = """
from reid_dist.kernels.settings import kernel

@kernel
def called(x):
    return x + {term}
"""
_SECOND = """
from reid_dist.kernels.first import called
from reid_dist.kernels.settings import kernel

@kernel
def calling(x):
    return 10 * called(x)
"""
_WORDS = [sys.executable, "-c", "from reid_dist.kernels.second import calling; print(calling(1))"]


def test_a_changed_callee_is_noticed(tmp_path: Path) -> None:
    package = tmp_path / "reid_dist"
    (package / "kernels").mkdir(parents=True)
    source = Path(reid_dist.__file__).parent / "kernels"
    (package / "__init__.py").touch()
    for name in ("__init__.py", "settings.py"):
        shutil.copy(source / name, package / "kernels" / name)
    (package / "kernels" / "second.py").write_text(_SECOND)
    answers = []
    for term in (1, 2, 2):
        (package / "kernels" / "first.py").write_text(_FIRST.format(term=term))
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        environment |= {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            _WORDS, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        answers.append(int(done.stdout))
    assert answers == [20, 30, 30]
    assert list((package / "kernels" / "__pycache__").glob("*.nbi")), "nothing was cached, so nothing was tested"
