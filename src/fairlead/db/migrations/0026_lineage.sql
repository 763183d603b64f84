-- A run that ended while another transaction held the row of the job that waits for it: that transaction may roll back,
-- and then the job would sleep on. A duty wakes it.
alter table fairlead.workflow_runs add column parent_asleep boolean not null default false;
create index workflow_runs_parent_asleep on fairlead.workflow_runs (id) where parent_asleep;
insert into fairlead.duties (name) values ('sleepers');
