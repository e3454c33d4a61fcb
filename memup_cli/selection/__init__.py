"""Which steps are targets: U_t, drawn by uncertainty."""
