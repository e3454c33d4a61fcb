"""memup: long-term memory for very long sequences, trained by predicting their uncertain outcomes (MemUP)."""

__version__ = "0.1.0"
