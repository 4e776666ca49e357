from typing import Any

from . import FDBRange as FDBRange
from . import Future as Future
from . import Key as Key
from . import TransactionRead as TransactionRead
from . import Value as Value

class FutureInt64(Future[int]):
    def __init__(self, fpointer: object) -> None: ...

class FutureKeyValueArray(Future[Any]):
    def __init__(self, fpointer: object) -> None: ...

class FutureVoid(Future[None]):
    def __init__(self, fpointer: object) -> None: ...

def strinc(key: bytes) -> bytes: ...
def __getattr__(name: str) -> Any: ...
