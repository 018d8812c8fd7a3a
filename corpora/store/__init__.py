"""The passage store.

layout  files of a store                                  writer    records -> store
frames  passage <-> bytes, written with frequent phrases  database  LMDB, while a store is written
batches many frames in one LMDB value                     reader    store -> passages
names   rows by id and by title                           phrases  frequent strings, and their hash table
columns spans of the passages, in a file of Arrow
"""

from .layout import FORMAT_VERSION, KIND
from .reader import PassageStore, TextKeys
from .writer import Follower, StoreWriter

__all__ = ["FORMAT_VERSION", "KIND", "Follower", "PassageStore", "StoreWriter", "TextKeys"]
