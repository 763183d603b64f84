-- Who is to blame when a worker is lost. `lost_count` counts the losses that a job is charged with: its worker held nothing
-- else. A loss beside others is not charged; it is counted in `suspected`. An accused job was lost while it was the only
-- one that had just begun, or was charged before: it runs where nothing else runs.
alter table fairlead.jobs add column suspected integer not null default 0;
alter table fairlead.jobs add column accused boolean not null default false;

-- A suspect waits here also when it is due: claim_suspect takes it, one at a time, and neither stager nor claim sees it.
alter table fairlead.later add column alone boolean not null default false;
create index later_due on fairlead.later (due_at, job_id) where not alone;
create index later_alone on fairlead.later (tenant_id, definition_id, due_at, job_id) where alone;

-- Of a suspect's lease: until then its worker begins nothing else.
alter table fairlead.leases add column probation_until timestamptz;

-- Leases of one worker end at slightly different times. This remembers, for a day, the workers that lost one. One that is
-- seen after all was only cut off, and its job is not to blame.
create table fairlead.lost_workers (
    worker_id       text primary key,
    -- the latest end of a lease that was lost
    expired_at      timestamptz not null,
    -- whether one job was accused of it
    blamed          boolean not null,
    -- the job that was charged with it
    charged_job     uuid,
    charged_attempt integer
);

-- One row, which every sweep of a watchdog renews. Where it is old, the database was away, or no watchdog ran; then leases
-- are left to their owners for a while. The row is replicated, so a failover is noticed as well as a restart.
create table fairlead.pulse (
    is_only    boolean primary key default true check (is_only),
    pulse_at   timestamptz,
    resumed_at timestamptz not null default '-infinity',
    -- the resumption before that
    resumed_before timestamptz not null default '-infinity'
);
insert into fairlead.pulse default values;
