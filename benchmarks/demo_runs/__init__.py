"""What the demo's training is worth, by seed, and which part of that its gate and its proposer are worth."""
