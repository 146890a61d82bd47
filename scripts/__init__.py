"""What the Makefile runs: setting up, the small model, the demo."""
