"""What a test begins with, and what it asks the database: table names are here, and in the tests of the SQL."""

# ruff: noqa: F403 - every name, also of modules that get more of them
from tests.given.beginnings import *
from tests.given.changes import *
from tests.given.jobs_and_runs import *
from tests.given.places import *
from tests.given.rows import *
from tests.given.times import *
