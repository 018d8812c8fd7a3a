"""The ground floor: nothing of passages is in it, and it imports none of the four packages.

errors     the IdxError tree                              registry   name -> "module:attribute"
progress   progress callbacks of long operations          progress_display  progress bars and lines on standard error
validation option dataclasses, validated by pydantic      compiled   ``kernel``: compiled inner loops and their cache
artifacts/ directories that are sealed and published      machine/   memory, threads, processes, devices
net/       downloads, and requests to other machines      cluster    a Ray cluster: its connection, nodes and errors
batches    division of a stream                          plugins    values in users' files and packages, by name
"""
