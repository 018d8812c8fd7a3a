"""Fault injection on whole commands and homes, in processes: kills, full or corrupt disks, jumping clocks."""
