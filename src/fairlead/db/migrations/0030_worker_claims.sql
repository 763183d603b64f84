-- A claim over HTTP that the worker gave an id, and what it took: written with the leases, so a worker that did not hear the
-- answer asks again under the same id and is told of the same jobs. No id takes jobs twice. Kept for an hour or two.
create table fairlead.worker_claims (
    worker_id text not null,
    claim_id  uuid not null,
    -- of all leases that the claim took
    token     uuid not null,
    jobs      uuid[] not null,
    -- the worker has asked again, so it may run the jobs: the server does not give them back any more
    repeated  boolean not null default false,
    made_at   timestamptz not null default clock_timestamp(),
    primary key (worker_id, claim_id)
);
create index worker_claims_made on fairlead.worker_claims (made_at);
