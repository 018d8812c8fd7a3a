"""The passage store.

layout   files and tables of a store                     writer  records -> store
batches  many compressed passages in one LMDB value      reader  store -> passages
names    rows by id and by title                         checks  checksums of arrays and of LMDB's own pages
vocabulary  passage <-> frame                            phrases kernels: texts as numbers of frequent phrases
views    bytes as numbers of several sizes
"""

from .layout import FORMAT_VERSION, KIND
from .names import Rows
from .reader import PassageStore, TextKeys
from .writer import Follower, StoreWriter

__all__ = ["FORMAT_VERSION", "KIND", "Follower", "PassageStore", "Rows", "StoreWriter", "TextKeys"]
