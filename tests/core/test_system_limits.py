"""What limits of the system refuse: one line with the limit to raise, and never damage of a store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from reid_dist.cli.ending import ending_of
from reid_dist.core.limits import shortage
from reid_dist.errors import ShortageError
from reid_dist.stores.object_errors import storage_errors

THREAD = RuntimeError("can't start new thread")
FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(("error", "limit"), [(THREAD, "ulimit -v"), (FILE, "ulimit -n")])
@pytest.mark.parametrize("uri", ["/data/gallery.zarr", "s3://bucket/gallery.zarr"])
def test_a_refusal_is_no_damage(error: Exception, limit: str, uri: str) -> None:
    with pytest.raises(ShortageError, match=limit) as caught, storage_errors(uri):
        raise error
    # Readers pass it on as they do with missing memory.
    assert isinstance(caught.value, MemoryError)
    for each in (error, caught.value):
        ending = ending_of(each)
        assert ending is not None
        assert ending.code == 3
        assert str(ending.error) == str(caught.value)
        assert "\n" not in str(ending.error)


@pytest.mark.parametrize("make", [lambda: RuntimeError("other"), lambda: OSError(errno.ENOENT, "absent")])
def test_other_errors_stay_what_they_are(make: Callable[[], Exception]) -> None:
    error = make()
    assert shortage(error) is None
    with pytest.raises(type(error)) as caught, storage_errors("/data/gallery.zarr"):
        raise error
    assert caught.value is error
