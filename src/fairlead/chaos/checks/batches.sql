-- name: batch_mixed
-- A batch had jobs of several tenants or definitions.
-- work of chaos.batched: pg_temp.batches where cardinality(jobs) > 1
select b.jobs[1], 'was handed over at ' || to_timestamp(b.at + %(offset)s) || ' in a batch of '
    || count(distinct j.tenant_id) || ' tenants and ' || count(distinct j.definition_id) || ' definitions'
from pg_temp.batches b join fairlead.job_records j on j.id = any (b.jobs)
group by b.at, b.jobs having count(distinct (j.tenant_id, j.definition_id)) > 1;

-- name: batch_too_large
-- A batch had more jobs than it may have, or a job twice.
-- work of chaos.batched: pg_temp.batches where cardinality(jobs) > 1
select b.jobs[1], 'was handed over in a batch of ' || cardinality(b.jobs) || ' jobs, ' || count(distinct o.id)
    || ' of them different; the most are ' || %(batch_size)s
from pg_temp.batches b cross join lateral unnest(b.jobs) as o(id)
group by b.at, b.jobs having cardinality(b.jobs) > least(%(batch_size)s, count(distinct o.id));
