"""Kinds of numbers among values of Python and NumPy; truth values are no numbers."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is of a type of whole numbers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is of a type of real numbers."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
