"""What a run says about itself: temperature, Stein discrepancy, autocorrelation, bias."""

__all__: list[str] = []
