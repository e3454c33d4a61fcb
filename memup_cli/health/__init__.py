"""What memup doctor looks at: this machine, the folder that runs go to, and the Doom engine."""
