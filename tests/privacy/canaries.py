"""A canary row in many forms, and where it could show: values, texts, errors and their frames."""

from __future__ import annotations

import base64
import contextlib
import gc
import io
import logging
import pickle
import re
import struct
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import pandas as pd

NUMBER, LABEL = 77310.4142, "CANARY_ZQX"
"""An outcome beyond all bounds and a level that nobody declared."""

PACKAGE = "privcausal"


def exactly(needle: bytes) -> re.Pattern[bytes]:
    return re.compile(re.escape(needle), re.IGNORECASE if needle.isascii() else 0)


def in_base64(content: bytes) -> list[bytes]:
    """What base64 makes of the bytes at each of the three offsets they may stand at."""
    found = []
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + content)
        first = (0, 2, 3)[offset]  # characters that hold bits of what stands before
        last = len(coded) - (0, 3, 2)[(offset + len(content)) % 3]
        found.append(coded[first:last])
    return found


TEXT = {
    "utf-8": LABEL.encode(),
    "utf-16 little": LABEL.encode("utf-16-le"),
    "utf-16 big": LABEL.encode("utf-16-be"),
    "utf-32": LABEL.encode("utf-32-le"),
    "hexadecimal": LABEL.encode().hex().encode(),
    "must come first": LABEL[::-1].encode(),
    "percent": b"".join(b"%%%02X" % code for code in LABEL.encode()),
    "escapes": "".join(f"\\u{ord(c):04x}" for c in LABEL).encode(),
    "entities": "".join(f"&#{ord(c)};" for c in LABEL).encode(),
    **{f"base64 at {k}": form for k, form in enumerate(in_base64(LABEL.encode()))},
}

_BITS = {code: struct.pack(code, NUMBER) for code in ("<d", ">d")}
LONG_NUMBER = {
    "decimals": b"77310.414",
    "hexadecimal": NUMBER.hex().encode(),
    **{f"float {code}": bits for code, bits in _BITS.items()},
    **{f"hexadecimal of {code}": bits.hex().encode() for code, bits in _BITS.items()},
    "octets": ", ".join(map(str, _BITS["<d"])).encode(),
    "float as integer": str(struct.unpack("<q", _BITS["<d"])[0]).encode(),
    "long double": np.longdouble(NUMBER).tobytes()[:10],
    "millionths": str(int(NUMBER * 1e6)).encode(),
    "pickled": pickle.dumps(NUMBER, 0)[1:-2],
    **{
        f"base64 of {code} at {k}": form
        for code, bits in _BITS.items()
        for k, form in enumerate(in_base64(bits))
    },
}

LONG = {
    **{f"label, {name}": exactly(form) for name, form in TEXT.items()},
    **{f"number, {name}": exactly(form) for name, form in LONG_NUMBER.items()},
}
"""Forms too long to be met by chance."""

NEEDLES = LONG | {
    # not the same digits further right in another number, or in a float written in base 16
    "number, five digits": re.compile(rb"(?<![\da-f.])77[,_ ]?310"),
    "number, %g": exactly(b"7.731e+04"),
    "number, scientific": exactly(b"7.731041"),
    **{f"number, float {code}": exactly(struct.pack(code, NUMBER)) for code in ("<f", ">f")},
}


ADDRESS = re.compile(rb" at 0x[0-9a-f]{6,16}\b")
"""Where an object lies in memory, as its `repr` says: 77310 is met in it by chance."""


def found_in(content: bytes | str, needles: dict[str, re.Pattern[bytes]] = NEEDLES) -> list[str]:
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    data = ADDRESS.sub(b" at", data)
    return [name for name, needle in needles.items() if needle.search(data)]


# -- errors ----------------------------------------------------------------------------------


def behind(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and all that hang on it."""
    seen: set[int] = set()
    stack = [error]
    while stack:
        e = stack.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        yield e
        stack += [e.__cause__, e.__context__, *getattr(e, "exceptions", ())]


def told(error: BaseException | None) -> str:
    """All that an exception and those behind it say: texts, arguments, notes and attributes."""
    texts: list[str] = []
    for e in behind(error):
        texts += [str(e), repr(e), repr(e.args), repr(vars(e)), repr(getattr(e, "__notes__", ()))]
    return "\n".join(texts)


def package_frames(error: BaseException | None) -> Iterator[FrameType]:
    """The package's own frames in the tracebacks of an exception and those behind it."""
    for e in behind(error):
        trace: TracebackType | None = e.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals.get("__name__", "").split(".")[0] == PACKAGE:
                yield trace.tb_frame
            trace = trace.tb_next


def shown(value: Any) -> bytes:
    """What a tool that prints the variables of a traceback could show of one, in full."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.tobytes() + repr(value.tolist()).encode()
    if isinstance(value, pd.DataFrame | pd.Series):
        return value.to_csv().encode("utf-8", "surrogatepass")
    if isinstance(value, dict | list | tuple | set | frozenset):
        items = value.items() if isinstance(value, dict) else value
        return b"\n".join(shown(item) for item in items)
    try:
        return repr(value).encode("utf-8", "surrogatepass")
    except Exception as error:  # a sealed value: what it says instead
        return str(error).encode()


def frames_with_it(error: BaseException) -> list[str]:
    """Variables of the package's frames that hold the canary: module, function, name."""
    return [
        f"{frame.f_globals['__name__']}.{frame.f_code.co_name}: {name}"
        for frame in package_frames(error)
        for name, value in frame.f_locals.items()
        if found_in(shown(value))
    ]


def assert_clean(error: BaseException, step: str = "") -> None:
    """Neither what an error says nor the package's frames behind it hold the canary."""
    assert found_in(told(error)) == [], step
    assert frames_with_it(error) == [], step


def faults(rows: int) -> list[Exception]:
    """Errors that quote the canary or the number of rows."""
    return [
        ValueError(f"could not convert string to float: '{LABEL}'"),
        KeyError(NUMBER),
        MemoryError(f"Unable to allocate an array with shape ({rows}, 9) and data type <U10"),
    ]


# -- files -----------------------------------------------------------------------------------

_WATCHED: list[list[str]] = []
_ON: list[bool] = []


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCHED:
        return
    if event == "open" and isinstance(arguments[0], str | bytes):
        path, mode, flags = arguments
        writes = any(c in (mode or "") for c in "wax+") or bool((flags or 0) & 3)
        if writes and os_path(path) != "/dev/null":
            _WATCHED[-1].append(os_path(path))
    elif event in ("tempfile.mkstemp", "tempfile.mkdtemp", "subprocess.Popen", "socket.connect"):
        _WATCHED[-1].append(f"{event} {arguments[0]}")


def os_path(path: str | bytes) -> str:
    return path.decode("utf-8", "replace") if isinstance(path, bytes) else path


class Written:
    """Paths opened for writing, temporary files, processes and connections within the block."""

    def __enter__(self) -> list[str]:
        if not _ON:  # an audit hook cannot be taken away again
            sys.addaudithook(_audited)
            _ON.append(True)
        _WATCHED.append([])
        return _WATCHED[-1]

    def __exit__(self, *_: object) -> None:
        _WATCHED.pop()


@contextlib.contextmanager
def logs_into(stream: io.StringIO) -> Iterator[None]:
    """All loggers at DEBUG."""
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    loggers = [root, *map(logging.getLogger, root.manager.loggerDict)]
    levels = [logger.level for logger in loggers]
    root.addHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# -- what a value holds ----------------------------------------------------------------------

_CLOSED = (type, type(sys), type(len), type(lambda: 0))
MOST_OBJECTS = 300_000


def reachable(value: Any) -> Iterator[tuple[str, bytes]]:
    """Texts, bytes, numbers and arrays that can be reached from a value by any reference."""
    seen, stack = {id(value)}, [value]
    kept = []  # ids of what was made while looking must not be used again
    while stack:
        item = stack.pop()
        kept.append(item)
        if isinstance(item, float | str | bytes | np.ndarray | pd.DataFrame | pd.Series):
            yield type(item).__name__, shown(item)
        for other in [*gc.get_referents(item), *cells_of(item)]:
            if id(other) not in seen and not isinstance(other, _CLOSED):
                seen.add(id(other))
                stack.append(other)
        assert len(seen) < MOST_OBJECTS


def cells_of(item: Any) -> list[Any]:
    """What a bound method's function closes over; functions themselves lead to whole modules."""
    function = getattr(item, "__func__", None)
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
