"""One file a verb: parse, build the config, call one function, print."""
