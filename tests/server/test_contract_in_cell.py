"""A few tests of the API's contract, with tenants that live in another cell than the one that is asked.

`make cells` runs all of them so.
"""

from collections.abc import AsyncIterator

import pytest

from tests.server.cells import world_in_cell
from tests.server.test_agents_api import (
    test_a_failure_of_a_canceled_job_may_be_told_again,  # noqa: F401
)
from tests.server.test_events_api import test_an_event_is_kept_as_it_was_told  # noqa: F401
from tests.server.test_hook_deliveries import (
    test_unknown_tenants_and_hooks_are_refused_alike,  # noqa: F401
)
from tests.server.test_hosts_api import (
    test_of_two_who_show_a_code_at_once_one_is_enrolled,  # noqa: F401
)
from tests.server.test_jobs_api import (
    test_a_job_is_canceled_and_retried_with_another_payload,  # noqa: F401
    test_a_job_is_enqueued_with_all_its_options,  # noqa: F401
    test_a_super_admin_names_the_tenant_of_a_summary,  # noqa: F401
)
from tests.server.world import Uncounted, World

pytestmark = pytest.mark.postgres_only("these cells are databases of one server")


@pytest.fixture(scope="module")
async def world(module_url: str) -> AsyncIterator[World]:
    """A world behind the application of another cell. One for all tests here: they do not count what others made."""
    async with world_in_cell(module_url) as made:
        made.app.state.gatekeeper.failures = Uncounted(made.fl)
        yield made
