"""Settings of other trainers, one file each: which of their keys is which option of ours, and why others are none."""
