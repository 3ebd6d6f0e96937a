"""Views that read a source by themselves: the checkpoint is the position, and is brought to what the catalog wants."""
