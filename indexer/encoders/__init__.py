"""Text encoders. ``transformer``: what a checkpoint needs to be told and the one forward pass; one file a family besides."""
