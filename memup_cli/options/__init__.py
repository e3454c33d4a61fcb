"""The options of each stage: frozen, validated models that import no torch; their descriptions are the help texts."""
