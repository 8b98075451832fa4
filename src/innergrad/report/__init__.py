"""Reports: one HTML file that needs nothing else, about a compiled model or about a run of the lab."""

from innergrad.report.models import report_of_model
from innergrad.report.page import Page
from innergrad.report.runs import report_of_run

__all__ = ["Page", "report_of_model", "report_of_run"]
