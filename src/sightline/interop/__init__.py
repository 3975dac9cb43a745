"""Other people's models and formats. `door` lets `capture` see attention that was written elsewhere."""
