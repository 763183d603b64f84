-- A run that ended while another transaction held the row of the job that waits for it: that transaction may roll back,
-- and then the job would sleep on. A duty wakes it.
alter table fairlead.workflow_runs add column parent_asleep boolean not null default false;
create index workflow_runs_parent_asleep on fairlead.workflow_runs (id) where parent_asleep;
insert into fairlead.duties (name) values ('sleepers');

-- Which job emitted an event, or ended and was told of; and the triggers that led to that job, each by the job of the one
-- before it, the first of them first. So what sets itself off again is known for a circle.
alter table fairlead.events
    add column caused_by uuid,
    add column lineage uuid[] not null default '{}';
