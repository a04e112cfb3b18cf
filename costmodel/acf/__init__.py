"""ptxas control files (ACFs) of the user's: a catalogue, and who they are in records.

An ACF changes how ptxas allocates registers and schedules instructions. This project
ships none; docs/control-files.md says where they come from and what may go wrong.
"""
