"""Progress: bars of tqdm where it is installed, lines on a terminal else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class Progress:
    """How much of `total` is done; 0: nobody knows how much there is. `shown`: None shows it on a terminal and in a notebook only."""

    def __init__(self, what: str, total: int, unit: str, shown: bool | None) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._bar: Any = None
        self._done, self._text, self._last = 0, "", time.monotonic()
        self._lines = False
        if shown is None:
            shown = sys.stderr.isatty() or "ipykernel" in sys.modules
        if not shown:
            return
        try:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total or None, desc=what, unit=unit, unit_scale=unit == "B", leave=False)
        except ImportError:
            self._lines = True

    def update(self, done: int, text: str = "") -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._done)
        elif self._lines and time.monotonic() - self._last >= 1:
            self._last = time.monotonic()
            of = f" of {self._total}" if self._total else ""
            print(f"{self._what}: {done}{of} {self._unit}{', ' + text if text else ''}", file=sys.stderr)
        self._done, self._text = done, text

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
