"""Reports: one HTML file that needs nothing else, about a compiled model, a run of the lab or a fitted table."""

from innergrad.report.models import report_of_model
from innergrad.report.page import Page
from innergrad.report.runs import report_of_run
from innergrad.report.tables import report_of_fit

__all__ = ["Page", "report_of_fit", "report_of_model", "report_of_run"]
