"""Statements in which tables are replaced by their shards."""

from fairlead.db.sharded_tables import ShardedTables
from tests.tables import each_case

TABLES = ShardedTables(
    {"ready": "ready_7", "leases": "leases_8", "job_records": "job_records_9"},
    {"jobs": "select r.id from fairlead.job_records r left join fairlead.leases l on l.job_id = r.id"},
)
JOBS = "(select r.id from fairlead.job_records_9 r left join fairlead.leases_8 l on l.job_id = r.id)"


@each_case(
    ("text", "named"),
    [
        ("select 1 from fairlead.ready r", "select 1 from fairlead.ready_7 r"),
        ("select 1 from fairlead.ready as r", "select 1 from fairlead.ready_7 as r"),
        (
            "select ready.id from fairlead.ready where 1 = 1",
            "select ready.id from fairlead.ready_7 as ready where 1 = 1",
        ),
        ("select from fairlead.ready;", "select from fairlead.ready_7 as ready;"),
        ("(select from fairlead.ready)", "(select from fairlead.ready_7 as ready)"),
        (
            "select from fairlead.ready, fairlead.leases l",
            "select from fairlead.ready_7 as ready, fairlead.leases_8 l",
        ),
        (
            "insert into fairlead.ready (id) select 1",
            "insert into fairlead.ready_7 as ready (id) select 1",
        ),
        ("update fairlead.ready set id = 1", "update fairlead.ready_7 as ready set id = 1"),
        (
            "delete from fairlead.leases using fairlead.ready r where leases.id = r.id",
            "delete from fairlead.leases_8 as leases using fairlead.ready_7 r where leases.id = r.id",
        ),
        ("copy fairlead.ready (id) from stdin", "copy fairlead.ready_7 (id) from stdin"),
        ("truncate fairlead.ready, fairlead.leases", "truncate fairlead.ready_7, fairlead.leases_8"),
        ("select 'fairlead.ready'::regclass", "select 'fairlead.ready_7'::regclass"),
        ("declare r fairlead.ready%rowtype;", "declare r fairlead.ready_7%rowtype;"),
        ("select from fairlead.jobs j where j.id = 1", f"select from {JOBS} j where j.id = 1"),
        ("select from fairlead.jobs where id = 1", f"select from {JOBS} as jobs where id = 1"),
        ("declare j fairlead.jobs;", "declare j fairlead.jobs;"),
        ("create function f() returns fairlead.ready", "create function f() returns fairlead.ready"),
        (
            "select fairlead.claim(1) from fairlead.other o",
            "select fairlead.claim(1) from fairlead.other o",
        ),
    ],
)
def test_a_table_is_replaced_by_its_shard_and_keeps_its_name_as_alias(text: str, named: str) -> None:
    assert TABLES.name_shards(text) == named
