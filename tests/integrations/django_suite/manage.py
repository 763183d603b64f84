"""Runs the tests of the Django backend with Django's own test runner, on a test database that Django makes."""

import os
import sys
import warnings

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    warnings.simplefilter("error")
    os.environ["DJANGO_SETTINGS_MODULE"] = "suite.settings"
    execute_from_command_line(sys.argv)
