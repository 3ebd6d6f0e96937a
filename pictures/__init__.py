"""Makes the pictures of the documentation, with the programs themselves: ``make pictures``. Begin in ``__main__``."""
