"""What every network needs of the machine: the optimiser, copies to the device, several processes, a watch."""
