"""Databases for tests: each is used again after a reset, which takes a tenth of the time of a new one."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

from fairlead.db.scratch import at_database

# Kept in the template, so that every copy has them: the rows that it was filled with, a note of each change of the
# schema, and the reset. Triggers are off during the reset, since the audit log refuses to be emptied.
_PREPARE = """
create schema test_reset;
create table test_reset.schema_changes (at timestamptz default clock_timestamp());
create function test_reset.note_change() returns event_trigger language plpgsql security definer as $$
begin
    -- each session makes tables for itself; they go with it
    if not exists (select from pg_event_trigger_ddl_commands() where schema_name = 'pg_temp') then
        insert into test_reset.schema_changes default values;
    end if;
end $$;
create function test_reset.note_drop() returns event_trigger language plpgsql security definer as $$
begin
    if exists (select from pg_event_trigger_dropped_objects() where not is_temporary) then
        insert into test_reset.schema_changes default values;
    end if;
end $$;

do $$
declare name text;
begin
    for name in
        select c.relname from pg_class c
        where c.relnamespace = 'fairlead'::regnamespace and c.relkind = 'r' and pg_relation_size(c.oid) > 0
    loop
        execute format('create table test_reset.%I as table fairlead.%I', name, name);
    end loop;
end $$;

create function test_reset.reset() returns boolean language plpgsql as $$
declare
    filled text[] := array(
        select c.relname from pg_class c
        where c.relnamespace = 'test_reset'::regnamespace and c.relkind = 'r' and c.relname <> 'schema_changes');
    used text;
    name text;
begin
    if exists (select from test_reset.schema_changes)
        or exists (select from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
            where d.datname = current_database()) then
        return false;
    end if;
    set local session_replication_role = replica;
    select string_agg(format('fairlead.%I', c.relname), ', ') into used from pg_class c
    where c.relnamespace = 'fairlead'::regnamespace and c.relkind = 'r' and c.relname <> all(filled)
        and pg_relation_size(c.oid) > 0;
    if used is not null then
        execute 'truncate ' || used || ' restart identity cascade';
    end if;
    foreach name in array filled loop
        execute format('delete from fairlead.%I', name);
        execute format('insert into fairlead.%I overriding system value select * from test_reset.%I', name, name);
    end loop;
    return true;
end $$;
create event trigger test_reset_changes on ddl_command_end execute function test_reset.note_change();
create event trigger test_reset_drops on sql_drop execute function test_reset.note_drop();
"""


class Databases:
    """Copies of a template, lent to one test at a time."""

    def __init__(self, server: str, template: str) -> None:
        self._server = server
        self._template = template
        self._free: list[str] = []
        with psycopg.connect(at_database(server, template), autocommit=True) as connection:
            connection.execute(_PREPARE.encode())

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of a database that is as the template was filled."""
        name = self._free.pop() if self._free else self._create()
        yield at_database(self._server, name)
        if self._reset(name):
            self._free.append(name)
        else:
            self._run(f"drop database {name} with (force)")

    def _create(self) -> str:
        name = f"test_{uuid4().hex[:12]}"
        self._run(f"create database {name} template {self._template}")
        return name

    def _reset(self, name: str) -> bool:
        """Whether the database can be used again: a test that changed the schema spoils it."""
        url = at_database(self._server, name)
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid()"
                )
                row = connection.execute("select test_reset.reset()").fetchone()
        except psycopg.Error:  # a database that a test made unusable
            return False
        return row == (True,)

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement.encode())
