-- What is looked at all the time, and what was found: written by the duty `checks` for hot tables, and by `sample` for
-- the record, a range of ids at a time. Every process shows it as a metric, so that one of them looks for all.
create table fairlead.checks (
    name       text primary key,
    verdict    text not null,
    value      double precision,
    detail     text not null,
    advice     text not null default '',
    checked_at timestamptz not null default clock_timestamp(),
    constraint checks_verdict check (verdict in ('ok', 'warn', 'fail'))
) with (fillfactor = 50);

-- A duty that fails every time is put off each time, and so never looks overdue: its failures are counted.
alter table fairlead.duties
    add column done_at timestamptz,
    add column failures integer not null default 0,
    add column last_error text;

insert into fairlead.duties (name) values ('checks'), ('sample');

-- Runs that are over and that a job waited for: whether that job still waits is looked at from here.
create index workflow_runs_over on fairlead.workflow_runs (finished_at)
    where parent_job_id is not null and status <> 'running';
