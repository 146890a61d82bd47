"""What is measured, and how: coverage, token masks, throughput. See docs/performance.md."""
