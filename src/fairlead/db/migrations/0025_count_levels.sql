-- Levels apart from minutes: reading how many jobs stand where costs one row for each tenant and definition and what has
-- been counted since the last fold, and no longer every minute of the last day.

-- Of all rows of counts that are leveled, and of all runs that they ever told of. A level is this and the rows that are
-- not leveled, read by one statement.
create table fairlead.count_levels (
    tenant_id        uuid not null,
    definition_id    uuid not null,
    queued           bigint not null default 0,
    running          bigint not null default 0,
    succeeded        bigint not null default 0,
    failed           bigint not null default 0,
    dead_letter      bigint not null default 0,
    canceled         bigint not null default 0,
    -- ever: runs that ended, what became of their jobs, and how many of them were lost
    runs             bigint not null default 0,
    runs_succeeded   bigint not null default 0,
    runs_failed      bigint not null default 0,
    runs_dead_letter bigint not null default 0,
    runs_retried     bigint not null default 0,
    runs_lost        bigint not null default 0,
    primary key (tenant_id, definition_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

alter table fairlead.counts alter column queued type bigint;
alter table fairlead.counts alter column running type bigint;
alter table fairlead.counts alter column succeeded type bigint;
alter table fairlead.counts alter column failed type bigint;
alter table fairlead.counts alter column dead_letter type bigint;
alter table fairlead.counts alter column canceled type bigint;
alter table fairlead.counts add column lost integer;
-- those that are there are in the levels from here on, those that come are not yet
alter table fairlead.counts add column leveled boolean not null default true;
alter table fairlead.counts alter column leveled set default false;
create index counts_not_leveled on fairlead.counts (tenant_id) where not leveled;

-- Nobody counts meanwhile: the changes of the table above lock it to the end.
insert into fairlead.count_levels (
    tenant_id, definition_id, queued, running, succeeded, failed, dead_letter, canceled,
    runs, runs_succeeded, runs_failed, runs_dead_letter, runs_retried)
select p.tenant_id, p.definition_id, sum(p.queued), sum(p.running), sum(p.succeeded), sum(p.failed),
    sum(p.dead_letter), sum(p.canceled), sum(p.runs), sum(p.runs_succeeded), sum(p.runs_failed),
    sum(p.runs_dead_letter), sum(p.runs_retried)
from (
    select c.tenant_id, c.definition_id, c.queued, c.running, c.succeeded, c.failed, c.dead_letter, c.canceled,
        coalesce(c.runs, 0) as runs, case when c.runs is null then 0 else c.succeeded end as runs_succeeded,
        case when c.runs is null then 0 else c.failed end as runs_failed,
        case when c.runs is null then 0 else c.dead_letter end as runs_dead_letter,
        coalesce(c.retried, 0) as runs_retried
    from fairlead.counts c
    union all
    select u.tenant_id, u.definition_id, 0, 0, 0, 0, 0, 0, u.runs, u.succeeded, u.failed, u.dead_letter, u.retried
    from fairlead.usage_hourly u
) p
group by p.tenant_id, p.definition_id;

-- A watchdog of an older version would fold without leveling: it does not know these names.
update fairlead.duties set name = 'count_minutes', place = null where name = 'minutes';
update fairlead.duties set name = 'count_history' where name = 'history';

do $$
begin
    execute 'alter table fairlead.count_levels enable row level security';
    execute 'alter table fairlead.count_levels force row level security';
    execute 'create policy system_rows on fairlead.count_levels to fairlead_system using (true) with check (true)';
    execute 'create policy tenant_rows on fairlead.count_levels to fairlead_tenant '
        'using (tenant_id = (select fairlead.tenant_of_session())) '
        'with check (tenant_id = (select fairlead.tenant_of_session()))';
end
$$;
grant select on fairlead.count_levels to fairlead_tenant;
