"""Values that may not be looked at: the one base class of everything inside the vault."""

from __future__ import annotations

from typing import Any, NoReturn

from privcausal.errors import PrivacyBreach


class Sealed:
    """Raises on every way Python has of turning a value into something to see, store or test."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PrivacyBreach(
            f"{type(self).__name__} holds private rows: it cannot be shown, tested, looped over, "
            "copied or pickled. Use a release"
        )

    __repr__ = __str__ = __format__ = __bytes__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __len__ = _refuse
    __iter__ = __next__ = __getitem__ = __contains__ = __reversed__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __array__ = __hash__ = __dir__ = _refuse
