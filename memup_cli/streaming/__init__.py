"""Episodes as streams: rows, previous actions and targets y, read from the store and brought to the device."""
