"""The passage store.

layout   files and tables             writer  records -> store
batches  frames within a batch        reader  store -> passages
names    rows by id and by title      checks  checksums of everything but frames
"""

from .layout import FORMAT_VERSION, KIND
from .names import Rows
from .reader import PassageStore, TextKeys
from .writer import StoreWriter

__all__ = ["FORMAT_VERSION", "KIND", "PassageStore", "Rows", "StoreWriter", "TextKeys"]
