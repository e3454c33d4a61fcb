"""Two-Colors: a room full of acid, and a pillar that shows for 45 steps which of two colors heals."""
