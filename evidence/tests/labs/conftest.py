"""The small run that the credit laboratory is tried on."""

from tests.credit_lab.conftest import lab_run

__all__ = ["lab_run"]
