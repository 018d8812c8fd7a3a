"""The passage store.

layout  what is on disk       writer   records -> store
reader  store -> passages     sorting  ids and titles in order, in bounded memory
pages   their checksums       lmdb_pages  which pages LMDB has its tables on
"""

from .layout import FORMAT_VERSION, KIND
from .reader import PassageStore, Rows, TextKeys
from .writer import StoreWriter

__all__ = ["FORMAT_VERSION", "KIND", "PassageStore", "Rows", "StoreWriter", "TextKeys"]
